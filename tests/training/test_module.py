"""The training step: which policy each log-prob comes from, and what moves nothing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer
from made_models import EVERY_SUPPORTED, tiny_config, tiny_model
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from update_probe import ALGORITHMS, Case, GivenExperience

from ngrpo.algo.advantage import raw
from ngrpo.algo.clip import unclipped
from ngrpo.algo.correction import Mask, NoCorrection, Truncate
from ngrpo.algo.first_token import FirstTokenOnce
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.token_weight import EvenTokens, KlCov
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.lora import LoraSettings
from ngrpo.training.module import PolicyOptimization
from ngrpo.training.samples import Sample, Update
from ngrpo.training.update_settings import UpdateSettings
from ngrpo.types.problems import PromptBatch
from ngrpo.types.rollouts import Rollout

GRPO, GSPO = ALGORITHMS["grpo"], ALGORITHMS["gspo"]


class Recording(PolicyOptimization):
    """Keeps what each optimiser step learned from, its metrics and its gradient."""

    def on_fit_start(self) -> None:
        super().on_fit_start()
        self.steps: list[tuple[list[Sample], dict[str, Tensor], dict[str, Tensor]]] = []
        accumulate = self.policy_update.accumulate

        def recorded(samples: Sequence[Sample], backward: Callable[[Tensor], None]) -> dict[str, Tensor]:
            metrics = accumulate(samples, backward)
            gradient = {n: p.grad.clone() for n, p in self.policy.lm.named_parameters() if p.grad is not None}
            self.steps.append((list(samples), dict(metrics), gradient))
            return metrics

        self.policy_update.accumulate = recorded


@dataclass
class Logged(Callback):
    """Keeps the metrics of each iteration and the parameters after it."""

    metrics: list[dict[str, float]] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        self.updates.append(batch.update)
        self.metrics.append({name: float(value) for name, value in trainer.callback_metrics.items()})


@pytest.fixture
def case(make_engine, bound, requests, sampling, tiny_model_path: Path) -> Case:
    """Four prompts with four rollouts each, half of them right."""
    engine = make_engine()
    rollouts = engine.generate(requests[:16], sampling, bound(engine, NeighborMixing(rate=0.3)))
    rewards = torch.tensor([[1.0, 0.0, 1.0, 0.0]] * 4)
    return Case(str(tiny_model_path), "grpo", sampling.temperature, 300, rollouts, rewards)


def fit(
    case: Case,
    algorithm: Algorithm,
    lr: float,
    iterations: int = 1,
    precision: Any = "32-true",
    offload_optimizer: bool = False,
    **source: Any,
) -> tuple[Recording, list[dict[str, float]]]:
    """Trains with plain SGD on the same rollouts again and again; returns the module and each iteration's metrics."""
    logged = Logged()
    trainer = Trainer(
        accelerator="cpu", devices=1, max_epochs=1, callbacks=[logged], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, precision=precision,
    )  # fmt: skip
    module = Recording(
        ModelSource(case.model_path, **source), algorithm, NeighborMixing(), partial(torch.optim.SGD, lr=lr),
        UpdateSettings(
            temperature=case.temperature, microbatch_tokens=case.microbatch_tokens, max_grad_norm=1e9,
            offload_optimizer=offload_optimizer,
        ),
    )  # fmt: skip
    batches = [PromptBatch([], 0, iteration) for iteration in range(iterations)]
    for batch in batches:
        batch.experience = GivenExperience(case, 0, 1)
    trainer.fit(module, DataLoader(batches, batch_size=None))
    module.__dict__["updates"] = logged.updates
    return module, logged.metrics


def stock_scores(case: Case, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of one rollout from stock transformers; [T] each."""
    model = AutoModelForCausalLM.from_pretrained(case.model_path, attn_implementation="eager").eval()
    table = model.get_input_embeddings().weight
    inputs = table[torch.cat([rollout.prompt_ids, rollout.response_ids])].clone()
    for slot, ids, weights in zip(rollout.mixture.positions, *rollout.mixture.record[:2], strict=True):
        inputs[slot] = weights @ table[ids]
    with torch.no_grad():
        logits = model(inputs_embeds=inputs[None]).logits[0, len(rollout.prompt_ids) - 1 : -1] / case.temperature
    probs = logits.double().softmax(-1)
    return probs.log()[torch.arange(rollout.length), rollout.response_ids], -(probs * probs.log()).sum(-1)


def moved(case: Case, module: PolicyOptimization) -> float:
    """Largest change of a parameter since the model was loaded."""
    before = AutoModelForCausalLM.from_pretrained(case.model_path).state_dict()
    return max(float((p.detach() - before[name]).abs().max()) for name, p in module.policy.lm.named_parameters())


def norm(gradient: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float(g.double().square().sum()) for g in gradient.values()))


@pytest.mark.parametrize("algorithm", [GRPO, GSPO], ids=["grpo", "gspo"])
def test_old_log_probs_are_those_before_the_first_step(case: Case, algorithm: Algorithm):
    module, (logged,) = fit(case, replace(algorithm, optimizer_steps=2), lr=0.05)
    (first, before, _), (second, after, _) = module.steps
    assert [s.rollout for s in first + second] == case.rollouts
    assert [s.old_log_prob for s in first] == [None] * 8
    for sample in second:
        expected = stock_scores(case, sample.rollout)[0]
        torch.testing.assert_close(sample.old_log_prob.double(), expected, atol=1e-4, rtol=0)
    assert float(before["policy/ratio"]) == 1.0
    assert abs(float(after["policy/ratio"]) - 1) > 1e-3
    assert float(after["policy/clip_fraction"]) > 0
    assert logged["policy/ratio"] == pytest.approx((float(before["policy/ratio"]) + float(after["policy/ratio"])) / 2)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("name", ["grpo", "gspo", "copo"])
def test_first_step_scores_itself_as_the_scoring_pass_would(
    case: Case, name: str, precision: str, monkeypatch: pytest.MonkeyPatch
):
    """A rollout a pass, so that both make the same passes: the same losses and gradients, bit for bit."""
    alone = replace(case, microbatch_tokens=1)
    algorithm = replace(ALGORITHMS[name], optimizer_steps=4)
    module, logged = fit(alone, algorithm, lr=0.05, precision=precision, iterations=2)
    monkeypatch.setattr(Algorithm, "advantages_need_old_log_prob", True)
    monkeypatch.setattr("ngrpo.training.module.scored_by_their_own_step", list)
    scored, expected = fit(alone, algorithm, lr=0.05, precision=precision, iterations=2)
    assert [step[0][0].old_log_prob is None for step in module.steps] == [True, False, False, False] * 2
    assert not any(step[0][0].old_log_prob is None for step in scored.steps)
    for (_, metrics, gradient), (_, by_scoring, same) in zip(module.steps, scored.steps, strict=True):
        assert metrics == by_scoring
        assert gradient.keys() == same.keys()
        assert all(torch.equal(gradient[name], same[name]) for name in gradient)
    timed = {"time/score_s", "time/update_s"}
    assert [{k: v for k, v in one.items() if k not in timed} for one in logged] == [
        {k: v for k, v in one.items() if k not in timed} for one in expected
    ]


def test_the_update_is_left_on_the_batch(case: Case):
    """Advantages in the rollouts' order, a ratio for each token of each step."""
    module, logged = fit(case, replace(GRPO, optimizer_steps=2), lr=0.05, iterations=2)
    assert len(module.updates) == 2
    for update, metrics, steps in zip(module.updates, logged, (module.steps[:2], module.steps[2:]), strict=True):
        samples = [sample for step in steps for sample in step[0]]
        assert all(torch.equal(a, s.advantage) for a, s in zip(update.advantages, samples, strict=True))
        ratios = torch.cat(list(update.ratios))
        assert len(ratios) == sum(rollout.length for rollout in case.rollouts)
        assert not ratios.requires_grad
        first = sum(sample.rollout.length for sample in steps[0][0])
        halves = [float(part.mean()) for part in (ratios[:first], ratios[first:])]
        assert sum(halves) / 2 == pytest.approx(metrics["policy/ratio"], rel=1e-5)


@pytest.mark.parametrize("kind", EVERY_SUPPORTED)
def test_nothing_random_reaches_a_score(case: Case, kind: str, tmp_path: Path):
    """Four optimiser steps at a learning rate of 0: every dropout and router noise that the model's kind has is on."""
    config = tiny_config(kind)
    noisy = [name for name, value in config.to_dict().items() if ("drop" in name or "jitter" in name) and value == 0]
    config.update(dict.fromkeys(noisy, 0.5))
    tiny_model(config).save_pretrained(tmp_path)
    alone = max(rollout.tokens for rollout in case.rollouts)  # scored in one pass, trained on in the same
    own = replace(case, model_path=str(tmp_path), microbatch_tokens=alone)
    module, logged = fit(own, replace(GRPO, optimizer_steps=4), lr=0.0)
    assert len(module.steps) == 4
    assert not module.policy.lm.training
    assert module.policy.training
    assert logged[0]["policy/ratio"] == 1.0
    assert logged[0]["policy/kl"] == 0.0


def test_a_single_step_needs_no_old_log_probs(case: Case):
    module, (logged,) = fit(case, GRPO, lr=0.05)
    assert [s.old_log_prob for s in module.steps[0][0]] == [None] * 16
    assert logged["policy/ratio"] == 1.0


@pytest.mark.parametrize(
    "algorithm",
    [
        replace(GRPO, token_weight=KlCov(share=0.5), clip=unclipped),
        replace(ALGORITHMS["reinforce_pp"], correction=NoCorrection()),
        replace(GRPO, credit=FirstTokenOnce()),
    ],
    ids=["kl_cov", "kl in the reward", "first_token"],
)
def test_the_first_ratio_is_exactly_1_even_where_all_are_scored_before(case: Case, algorithm: Algorithm):
    """In passes of other sizes than the step's."""
    module, _ = fit(case, replace(algorithm, optimizer_steps=2), lr=0.05)
    (first, before, gradient), (second, after, _) = module.steps
    assert [s.old_log_prob for s in first] == [None] * 8
    assert not any(s.old_log_prob is None for s in second)
    assert float(before["policy/ratio"]) == 1.0
    assert abs(float(after["policy/ratio"]) - 1) > 1e-4
    plain, _ = fit(case, replace(algorithm, optimizer_steps=2, token_weight=EvenTokens()), lr=0.05)
    for name, part in plain.steps[0][2].items():  # KL-Cov's penalty has no slope there
        torch.testing.assert_close(gradient[name], part)


def test_kl_is_zero_at_first_and_grows(case: Case):
    module, (first, second) = fit(case, GRPO, lr=0.05, iterations=2)
    assert first["policy/kl"] < 1e-6
    assert second["policy/kl"] > 1e-4
    assert moved(case, module) > 1e-3
    start = dict(AutoModelForCausalLM.from_pretrained(case.model_path).named_parameters())
    assert all(torch.equal(p, start[name]) for name, p in module.models.reference.lm.named_parameters())


def test_the_reference_exists_only_with_a_kl_and_is_not_saved(case: Case):
    module, _ = fit(case, GRPO, lr=0.0)
    assert module.models.reference is not None
    assert all(name.startswith("policy.") for name in module.state_dict())
    assert all(name.startswith("policy.") for name, _ in module.named_parameters())
    assert not any(p.requires_grad for p in module.models.reference.parameters())
    without, (logged,) = fit(case, replace(GRPO, kl_coef=0.0), lr=0.0)
    assert without.models.reference is None
    assert logged["policy/kl"] == 0.0


def test_the_reference_of_an_adapter_is_the_policy_without_it(case: Case):
    pytest.importorskip("peft")
    module, (first, second) = fit(case, GRPO, lr=0.5, iterations=2, lora=LoraSettings(rank=4))
    assert module.models.reference is None
    assert first["policy/kl"] < 1e-6
    assert second["policy/kl"] > 1e-4
    handed_over = dict(module.weights.named_weights())
    start = dict(AutoModelForCausalLM.from_pretrained(case.model_path).named_parameters())
    assert handed_over.keys() == start.keys()
    ref = module.scorer.reference_log_probs(case.rollouts)
    for rollout, log_prob in zip(case.rollouts, ref, strict=True):
        torch.testing.assert_close(log_prob.double(), stock_scores(case, rollout)[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "rewards",
    [torch.full((4, 4), math.nan), torch.ones(4, 4), torch.zeros(4, 4), torch.tensor([[1.0, math.nan, 1.0, 1.0]] * 4)],
    ids=["unscored", "all right", "all wrong", "right or unscored"],
)
def test_rewards_without_a_signal_move_nothing(case: Case, rewards: Tensor):
    module, _ = fit(replace(case, rewards=rewards), GSPO, lr=1.0)
    assert norm(module.steps[0][2]) == 0.0
    assert moved(case, module) == 0.0


def test_an_unscored_sample_moves_nothing_among_scored_ones(case: Case):
    """Another response in its place changes nothing."""
    gradients = []
    for rollouts in (case.rollouts, [*case.rollouts[:3], case.rollouts[7], *case.rollouts[4:]]):
        rewards = case.rewards.clone()
        rewards[0, 3] = math.nan
        module, _ = fit(replace(case, rewards=rewards, rollouts=rollouts), GSPO, lr=0.0)
        gradients.append(module.steps[0][2])
    difference = {name: gradients[0][name] - gradients[1][name] for name in gradients[0]}
    assert norm(difference) < 1e-5 * norm(gradients[0])


def test_entropy_and_mismatch_are_means_over_tokens(case: Case):
    shifted = [replace(r, log_probs=r.log_probs + 0.25 * i) for i, r in enumerate(case.rollouts)]
    module, (logged,) = fit(case, GRPO, lr=0.0)
    entropy = torch.cat([stock_scores(case, r)[1] for r in case.rollouts])
    assert logged["policy/entropy"] == pytest.approx(float(entropy.mean()), abs=1e-5)
    (update,) = module.updates
    torch.testing.assert_close(
        torch.cat([update.entropies[r.key] for r in case.rollouts]).double(), entropy, atol=1e-5, rtol=0
    )
    assert logged["rollout/mismatch_mean"] < logged["rollout/mismatch_max"] < 1e-4
    _, (logged,) = fit(replace(case, rollouts=shifted), GRPO, lr=0.0)
    tokens = sum(r.length for r in shifted)
    expected = sum(0.25 * i * r.length for i, r in enumerate(shifted)) / tokens
    assert logged["rollout/mismatch_mean"] == pytest.approx(expected, abs=1e-4)
    assert logged["rollout/mismatch_max"] == pytest.approx(0.25 * 15, abs=1e-4)


def test_mismatch_is_that_of_the_weights_before_the_first_step(case: Case):
    """In the second step the current log-probs have moved, and the engine's are compared with the old ones."""
    worse = replace(case.rollouts[-1], log_probs=case.rollouts[-1].log_probs - 1.0)
    case = replace(case, rollouts=[*case.rollouts[:-1], worse])
    module, (logged,) = fit(case, replace(GRPO, optimizer_steps=2), lr=0.05)
    assert abs(float(module.steps[1][1]["policy/ratio"]) - 1) > 1e-3
    assert float(module.steps[0][1]["rollout/mismatch_max"]) < 1e-4
    assert float(module.steps[1][1]["rollout/mismatch_max"]) == pytest.approx(1.0, abs=1e-4)
    assert logged["rollout/mismatch_max"] == pytest.approx(1.0, abs=1e-4)
    tokens = sum(r.length for r in case.rollouts[8:])
    assert logged["rollout/mismatch_mean"] == pytest.approx(worse.length / tokens / 2, abs=1e-4)


def test_gradient_checkpointing_recomputes_and_changes_nothing(case: Case, monkeypatch: pytest.MonkeyPatch):
    from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP

    forward, calls = Qwen2MLP.forward, []
    monkeypatch.setattr(Qwen2MLP, "forward", lambda self, x: calls.append(torch.is_grad_enabled()) or forward(self, x))
    plain, _ = fit(case, GSPO, lr=0.0)
    passes = len(calls)
    recomputed, _ = fit(case, GSPO, lr=0.0, checkpointing="full")
    assert len(calls) - passes == 2 * passes
    for name, gradient in plain.steps[0][2].items():
        torch.testing.assert_close(recomputed.steps[0][2][name], gradient)


@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
def test_bfloat16_models_train(case: Case, precision: str):
    seen: list[torch.dtype] = []

    def clip(log_ratio: Tensor, advantage: Tensor) -> Any:
        seen.extend((log_ratio.dtype, advantage.dtype))
        return GRPO.clip(log_ratio, advantage)

    algorithm = replace(GRPO, clip=clip, optimizer_steps=2)
    module, metrics = fit(case, algorithm, lr=0.05, iterations=2, precision=precision, dtype="bfloat16")
    assert {p.dtype for p in module.policy.parameters()} == {torch.bfloat16}
    assert set(seen) == {torch.float32}
    assert all(math.isfinite(value) for logged in metrics for value in logged.values())
    assert metrics[0]["rollout/mismatch_mean"] < 0.1
    assert moved(case, module) > 1e-3
    expected = [0.8660254, -0.8660254]
    assert [float(s.advantage[0, -1]) for s in module.steps[0][0]][:2] == pytest.approx(expected, rel=1e-5)


def entropy_gradient(case: Case) -> dict[str, Tensor]:
    """Gradient of minus the token mean of the policy's entropy, by stock transformers."""
    model = AutoModelForCausalLM.from_pretrained(case.model_path, attn_implementation="eager")
    entropies = []
    for rollout in case.rollouts:
        vectors = list(model.get_input_embeddings()(torch.cat([rollout.prompt_ids, rollout.response_ids])))
        for slot, ids, weights in zip(rollout.mixture.positions, *rollout.mixture.record[:2], strict=True):
            vectors[slot] = weights @ model.get_input_embeddings()(ids.long())
        logits = model(inputs_embeds=torch.stack(vectors)[None]).logits[0, len(rollout.prompt_ids) - 1 : -1]
        log_probs = (logits / case.temperature).log_softmax(-1)
        entropies.append(-(log_probs.exp() * log_probs).sum(-1))
    (-torch.cat(entropies).mean()).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def test_the_entropy_bonus_has_the_gradient_of_the_entropy(case: Case):
    token_mean = replace(GRPO, kl_coef=0.0)
    plain, _ = fit(case, token_mean, lr=0.0)
    bonus, _ = fit(case, replace(token_mean, entropy_coef=0.5), lr=0.0)
    expected = entropy_gradient(case)
    added = {name: (bonus.steps[0][2][name] - plain.steps[0][2][name]) / 0.5 for name in expected}
    difference = {name: added[name] - expected[name] for name in expected}
    assert norm(expected) > 1e-3
    assert norm(difference) < 1e-4 * norm(expected)


def test_kl_in_the_reward_comes_from_the_policy_before_the_first_step(case: Case, monkeypatch: pytest.MonkeyPatch):
    """The second iteration's policy has left the reference, and what is taken off is its k1 at that moment."""
    monkeypatch.setattr("ngrpo.training.module.scored_by_their_own_step", list)  # keeps what was scored to see it
    algorithm = replace(GRPO, advantage=raw, kl_in="reward", optimizer_steps=2)
    module, _ = fit(case, algorithm, lr=0.05, iterations=2)
    samples = [s for step in module.steps[2:] for s in step[0]]
    taken = torch.stack([r - s.advantage[0, 0] for r, s in zip(case.rewards.flatten(), samples, strict=True)])
    k1 = torch.stack([(s.old_log_prob - s.ref_log_prob).sum() for s in samples])
    torch.testing.assert_close(taken, 0.1 * k1, atol=1e-5, rtol=1e-4)
    assert k1.abs().max() > 0.01
    single, _ = fit(case, replace(algorithm, optimizer_steps=1), lr=0.0)
    assert single.steps[0][0][0].old_log_prob is not None


def test_the_correction_compares_the_engine_with_the_policy_before_the_first_step(case: Case):
    """A single step: the current policy is that policy, and the weight exp(lp - lp_rollout) carries no gradient."""
    likelier = [replace(r, log_probs=r.log_probs - 0.5) for r in case.rollouts]
    plain, _ = fit(case, replace(GRPO, kl_coef=0.0), lr=0.0)
    algorithm = replace(GRPO, kl_coef=0.0, correction=Truncate("token", cap=2.0))
    module, (logged,) = fit(replace(case, rollouts=likelier), algorithm, lr=0.0)
    assert logged["rollout/correction_weight"] == pytest.approx(math.exp(0.5), rel=1e-4)
    assert logged["rollout/correction_bounded"] == 0.0
    assert logged["rollout/mismatch_k1"] == pytest.approx(-0.5, abs=1e-4)
    assert logged["rollout/mismatch_k3"] == pytest.approx(math.exp(0.5) - 1.5, abs=1e-4)
    for name, gradient in plain.steps[0][2].items():
        torch.testing.assert_close(module.steps[0][2][name], math.exp(0.5) * gradient, rtol=1e-3, atol=1e-6)
    masked, _ = fit(replace(case, rollouts=likelier), replace(algorithm, correction=Mask("token", cap=1.5)), lr=0.0)
    assert norm(masked.steps[0][2]) == 0.0


def test_metrics_are_those_of_the_samples_that_count(case: Case):
    """Samples left out have the largest mismatch and are not in it, nor in the entropy."""
    rewards = case.rewards.clone()
    rewards[:, 0] = math.nan
    mismatched = [replace(r, log_probs=r.log_probs - float(i % 4 == 0)) for i, r in enumerate(case.rollouts)]
    _, (logged,) = fit(replace(case, rewards=rewards, rollouts=mismatched), GRPO, lr=0.0)
    counted = [r for i, r in enumerate(case.rollouts) if i % 4 != 0]
    entropy = torch.cat([stock_scores(case, r)[1] for r in counted])
    assert logged["policy/entropy"] == pytest.approx(float(entropy.mean()), abs=1e-5)
    assert logged["policy/sequences"] == 12
    assert logged["rollout/mismatch_max"] < 1e-4


def test_dropped_groups_are_not_counted(case: Case):
    rewards = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0] * 4, [1.0] * 4, [0.0, 0.0, 1.0, 0.0]])
    for zero_signal, counted in (("keep", 16), ("drop", 8)):
        _, (logged,) = fit(replace(case, rewards=rewards), replace(GRPO, zero_signal=zero_signal), lr=0.0)
        assert logged["policy/sequences"] == counted


def test_the_share_of_changed_parameters_is_logged(case: Case):
    """Of those that a gradient reaches, all move in float32; a small step on bfloat16 weights moves next to none."""
    shares = {}
    for dtype, lr in (("float32", 0.05), ("float32", 0.0), ("bfloat16", 1e-6)):
        module, logged = fit(case, GRPO, lr, dtype=dtype)
        shares[dtype, lr] = logged[0]["policy/changed_share"]
        gradient = module.steps[0][2].values()
        reached = sum(int((g != 0).sum()) for g in gradient) / sum(g.numel() for g in gradient)
        if lr == 0.05:
            assert shares[dtype, lr] == pytest.approx(reached, abs=0.05)
    assert shares["float32", 0.0] == 0.0
    assert shares["bfloat16", 1e-6] < 0.01


def test_moments_come_to_the_device_for_each_step(case: Case, monkeypatch: pytest.MonkeyPatch):
    """Of the one optimiser that is stepped, after its gradient; without the setting they stay where they are."""
    moved: list[tuple[int, bool]] = []

    def move_state(optimizers: list[torch.optim.Optimizer], device: torch.device) -> None:
        (optimizer,) = optimizers
        moved.append(
            (len(optimizer.param_groups), any(p.grad is not None for p in optimizer.param_groups[0]["params"]))
        )

    monkeypatch.setattr("ngrpo.training.module.move_state", move_state)
    fit(case, replace(GRPO, kl_coef=0.0), lr=0.05)
    assert moved == []
    fit(case, replace(GRPO, kl_coef=0.0, optimizer_steps=2), lr=0.05, offload_optimizer=True)
    assert moved == [(1, True), (1, True)]


@pytest.mark.parametrize("everywhere", [[True, True], [True, False]])
def test_weights_are_gathered_once_where_every_gpu_has_room(
    case: Case, monkeypatch: pytest.MonkeyPatch, everywhere: list[bool]
):
    """A rank that gathered otherwise than the others would wait for them in another collective."""
    monkeypatch.setattr("ngrpo.training.module.gathers_once", lambda *_: everywhere[0])
    monkeypatch.setattr("ngrpo.training.module.gathered_everywhere", lambda own: [own, *everywhere[1:]])
    module, _ = fit(case, GRPO, lr=0.0)
    assert module.forward_passes.gather_once is all(everywhere)
