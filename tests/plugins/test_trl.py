"""TRL's GRPOTrainer with exploration, against plain TRL, the engine's records and this project's own scoring model."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="the extra ngrpo[trl] is not installed")
pytestmark = pytest.mark.trl

from peft import LoraConfig  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from trl import GRPOTrainer  # noqa: E402

import ngrpo.plugins.trl as plugin  # noqa: E402
from ngrpo.errors import SettingError  # noqa: E402
from ngrpo.exploration.base import Exploration  # noqa: E402
from ngrpo.exploration.gaussian import GaussianSoftTokens  # noqa: E402
from ngrpo.exploration.gumbel import GumbelSoftThinking  # noqa: E402
from ngrpo.exploration.hrpo import HybridReasoning  # noqa: E402
from ngrpo.exploration.min_p import MinPSampling  # noqa: E402
from ngrpo.exploration.neighbor import NeighborMixing  # noqa: E402
from ngrpo.exploration.soft import SoftThinking  # noqa: E402
from ngrpo.exploration.token import TokenSampling  # noqa: E402
from ngrpo.modeling.loading import MODEL_PATH, ModelSource  # noqa: E402
from ngrpo.plugins.trl import ExploringGRPOTrainer  # noqa: E402
from ngrpo.rewards.plain_texts import TextReward  # noqa: E402
from ngrpo.rollout.torch_engine.engine import TorchEngine  # noqa: E402

LOGGED = ("loss", "grad_norm", "reward", "kl", "entropy", "clip_ratio/region_mean")

CASES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "two passes": {"num_iterations": 2, "max_steps": 6},
    "accumulated": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4},
    "sequence": {"importance_sampling_level": "sequence", "beta": 0.0, "epsilon": 3e-4},
    "truncated masked": {"mask_truncated_completions": True, "max_completion_length": 16},
    "checkpointed": {"gradient_checkpointing": True, "loss_type": "dr_grpo", "scale_rewards": "none"},
}


@pytest.fixture(scope="module")
def reward() -> Any:
    made = TextReward()
    yield made
    made.close()


def trained(kind: Any, reward: Any, args: Any, problems: Any, **own: Any) -> Any:
    trainer = kind(str(MODEL_PATH), reward, args, problems, **own)
    trainer.train()
    return trainer


def history(trainer: Any) -> list[dict[str, float]]:
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    return [{name: entry[name] for name in LOGGED if name in entry} for entry in steps]


class Watching(ExploringGRPOTrainer):
    """Compares TRL's log-probs with those of the rollouts, as long as the weights are those that made them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen: list[tuple[int, int]] = []
        self.differences: dict[str, list[float]] = {"replayed": [], "plain": []}

    def _get_per_token_logps_and_entropies(self, model: Any, ids: Any, mask: Any, kept: int, **options: Any) -> Any:
        made = super()._get_per_token_logps_and_entropies(model, ids, mask, kept, **options)
        if not torch.is_grad_enabled() and self._calls[True] not in self.seen:  # old log-probs, right after rollouts
            self.seen.append(self._calls[True])
            own = [r.log_probs for r in self._rollouts]
            plain = GRPOTrainer._get_per_token_logps_and_entropies(self, model, ids, mask, kept, **options)
            for name, scores in (("replayed", made[0]), ("plain", plain[0])):
                gaps = [(scores[i, : len(o)] - o).abs().max().item() for i, o in enumerate(own)]
                self.differences[name].append(max(gaps))
        return made


@pytest.mark.parametrize("case", CASES)
def test_a_strategy_that_never_mixes_gives_the_losses_of_plain_trl(
    case: str, problems: Any, settings: Any, reward: Any
) -> None:
    told: list[dict[str, list[Any]]] = []

    class Remembering(ExploringGRPOTrainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            own = self.rollout_func
            self.rollout_func = lambda prompts, trainer: told.append(own(prompts, trainer)) or told[-1]

    args = settings(**CASES[case])
    exploring = trained(Remembering, reward, args, problems, exploration=TokenSampling())
    again = iter(copy.deepcopy(told))
    plain = trained(GRPOTrainer, reward, args, problems, rollout_func=lambda prompts, trainer: next(again))
    assert len(history(plain)) == args.max_steps
    for ours, theirs in zip(history(exploring), history(plain), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"use_dora": True}, "peft_config has use_dora, whose weights are not"),
        ({"use_rslora": True}, "use_rslora"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern"),
        ({"lora_bias": True}, "lora_bias"),
        ({"alora_invocation_tokens": [3]}, "alora_invocation_tokens"),
        ({"trainable_token_indices": [3]}, "trainable_token_indices"),
        ({"layer_replication": [[0, 2], [1, 2]]}, "layer_replication"),
        ({"modules_to_save": ["norm"]}, "modules_to_save"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, "an adapter on model.embed_tokens, which is no linear layer"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_adapters_that_are_not_added_to_linear_layers_are_refused(
    changes: dict[str, Any], said: str, problems: Any, settings: Any, reward: Any
) -> None:
    adapter = LoraConfig(**{"r": 4, "target_modules": ["q_proj"]} | changes)
    assert said in refused(NeighborMixing(), reward, settings(), problems, peft_config=adapter)


@pytest.mark.parametrize(
    "changes", [{"init_lora_weights": "pissa"}, {"bias": "all"}, {"layers_to_transform": [0]}], ids=str
)
def test_plain_adapters_are_added(changes: dict[str, Any], problems: Any, settings: Any, reward: Any) -> None:
    adapter = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], **changes)
    args = settings(learning_rate=0.01)
    trainer = trained(Watching, reward, args, problems, exploration=NeighborMixing(rate=0.3), peft_config=adapter)
    assert max(trainer.differences["replayed"]) < 1e-4


@pytest.mark.parametrize("strategy", [NeighborMixing(rate=0.3), SoftThinking()], ids=["neighbor", "soft"])
def test_replayed_log_probs_are_those_of_the_rollouts(
    strategy: Exploration, problems: Any, settings: Any, reward: Any
) -> None:
    trainer = trained(Watching, reward, settings(temperature=0.7), problems, exploration=strategy)
    assert len(trainer.differences["replayed"]) == 2  # a later batch too
    assert max(trainer.differences["replayed"]) < 1e-4
    assert min(trainer.differences["plain"]) > 1e-2
    logged = [e["exploration/replay_difference"] for e in trainer.state.log_history if "reward" in e]
    assert len(logged) == 2
    assert max(logged) < 1e-4
    assert all(e["exploration/mixed"] > 0.05 for e in trainer.state.log_history if "reward" in e)


def test_lora_adapters_are_in_the_rollouts_weights(problems: Any, settings: Any, reward: Any) -> None:
    adapter = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])
    args = settings(learning_rate=0.05)
    trainer = trained(Watching, reward, args, problems, exploration=NeighborMixing(rate=0.3), peft_config=adapter)
    assert max(trainer.differences["replayed"]) < 1e-4
    assert [e["kl"] > 1e-3 for e in trainer.state.log_history if "kl" in e][-1]  # the adapter has moved the policy


def test_evaluation_samples_plainly(problems: Any, settings: Any, reward: Any) -> None:
    args = settings(per_device_eval_batch_size=8, max_steps=1)
    trainer = ExploringGRPOTrainer(
        str(MODEL_PATH), reward, args, problems, eval_dataset=problems.select(range(4)), exploration=SoftThinking()
    )
    assert trainer.evaluate()["eval_exploration/mixed"] == 0


def test_evaluations_between_leave_the_trainings_rollouts_as_they_are(
    problems: Any, settings: Any, reward: Any
) -> None:
    class Noting(ExploringGRPOTrainer):
        def explore(self, prompt_ids: Sequence[Sequence[int]]) -> Any:
            made = super().explore(prompt_ids)
            if self.model.training:
                self.noted = [*getattr(self, "noted", []), *(rollout.response_ids.tolist() for rollout in made)]
            return made

    few = {"per_device_eval_batch_size": 4, "steps_per_generation": 1, "max_steps": 2}
    given = {"exploration": NeighborMixing(rate=0.3), "eval_dataset": problems.select(range(2))}
    plain = trained(Noting, reward, settings(**few), problems, **given)
    between = trained(Noting, reward, settings(eval_strategy="steps", eval_steps=1, **few), problems, **given)
    assert any("eval_reward" in entry for entry in between.state.log_history)
    assert len(plain.noted) == 16
    assert between.noted == plain.noted


def test_a_resumed_step_makes_the_same_rollouts(problems: Any, settings: Any, reward: Any) -> None:
    def first(step: int) -> list[list[int]]:
        trainer = ExploringGRPOTrainer(str(MODEL_PATH), reward, settings(), problems, exploration=NeighborMixing())
        trainer.state.global_step = step
        trainer.model.train()
        return [r.response_ids.tolist() for r in trainer.explore([[5, 6, 7]] * 4)]

    assert first(3) == first(3) != first(4)


def test_a_training_goes_on_in_the_middle_of_a_batch(problems: Any, settings: Any, reward: Any) -> None:
    args = settings(save_strategy="steps", save_steps=3, max_steps=3)  # a batch has two steps
    trained(ExploringGRPOTrainer, reward, args, problems, exploration=NeighborMixing(rate=0.3))
    longer = settings(output_dir=args.output_dir, max_steps=6)
    trainer = Watching(str(MODEL_PATH), reward, longer, problems, exploration=NeighborMixing(rate=0.3))
    trainer.train(resume_from_checkpoint=True)
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == [1, 2, 3, 4, 5, 6]
    assert len(trainer.differences["replayed"]) == 2  # TRL makes the batch anew that it was in
    assert max(trainer.differences["replayed"]) < 1e-4
    assert min(trainer.differences["plain"]) > 1e-2


def refused(strategy: Exploration, reward: Any, args: Any, problems: Any, **own: Any) -> str:
    with pytest.raises(SettingError) as error:
        ExploringGRPOTrainer(str(MODEL_PATH), reward, args, problems, exploration=strategy, **own)
    return str(error.value)


def test_images_are_refused_since_no_rollout_sees_them(problems: Any, settings: Any, reward: Any) -> None:
    parts = [{"type": "image"}, {"type": "text", "text": "How many apples?"}]
    trainer = ExploringGRPOTrainer(str(MODEL_PATH), reward, settings(), problems, exploration=NeighborMixing())
    with pytest.raises(SettingError, match="a part of type image"):
        trainer.rollout_func([[{"role": "user", "content": parts}]], trainer)


def test_what_trl_cannot_score_is_refused(
    problems: Any, settings: Any, reward: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = settings()
    for strategy in (GumbelSoftThinking(), GaussianSoftTokens()):
        assert "is scored by a density" in refused(strategy, reward, args, problems)
    assert "learns parameters" in refused(HybridReasoning(), reward, args, problems)
    truncating: Sequence[Exploration] = (MinPSampling(), TokenSampling(top_p=0.9))
    for strategy in truncating:
        assert "truncates the softmax" in refused(strategy, reward, args, problems)
    for ignored in (
        {"top_p": 0.9},
        {"use_transformers_continuous_batching": True},
        {"vllm_structured_outputs_regex": "[0-9]+"},
        {"vllm_importance_sampling_mode": "token_truncate"},
        {"vllm_importance_sampling_clip_max": 2.0},
    ):
        ((name, value),) = ignored.items()
        assert f"{name}={value} is for" in refused(NeighborMixing(), reward, settings(**ignored), problems)
    assert "rollout_func=" in refused(NeighborMixing(), reward, args, problems, rollout_func=lambda *_: {})
    assert "max_completion_length=None" in refused(
        NeighborMixing(), reward, settings(max_completion_length=None), problems
    )
    assert "neftune_noise_alpha=5.0" in refused(NeighborMixing(), reward, settings(neftune_noise_alpha=5.0), problems)
    quantised = AutoModelForCausalLM.from_pretrained(MODEL_PATH)
    quantised.config.quantization_config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    with pytest.raises(SettingError, match="weights are quantised"):  # whatever the engine, which would take them
        ExploringGRPOTrainer(
            quantised, reward, args, problems, exploration=NeighborMixing(), engine=TorchEngine(ModelSource())
        )
    monkeypatch.setattr(plugin, "TESTED", "1.15.")
    assert "pip install 'ngrpo[trl]'" in refused(NeighborMixing(), reward, args, problems)
