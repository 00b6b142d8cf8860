"""Faults between settings, alone and through `train`, which must refuse them before a model is loaded."""

from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from contexts import step_context
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from places import ROOT
from torch import Tensor
from transformers import PretrainedConfig, Qwen2Config

from ngrpo.algo import advantage, aggregate, clip, kl, ratio, subsets
from ngrpo.algo.correction import Truncate
from ngrpo.algo.credit import DiscountedReturns, GeneralisedAdvantage
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.within_group import shortest
from ngrpo.config.schema import register
from ngrpo.data.curriculum import EveryProblem, SampledByPassRate
from ngrpo.entrypoints.input_validation import check_context, check_mixtures
from ngrpo.entrypoints.train import train
from ngrpo.entrypoints.validation import (
    check_ahead,
    check_algorithm,
    check_clip,
    check_critic,
    check_engine,
    check_group,
    check_ranks,
    check_rewards,
    check_shaping,
    check_support,
    warn_of_equal_groups,
)
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rewards.math import MathReward
from ngrpo.rewards.terms.base import WeightedTerm, bounds_of
from ngrpo.rewards.terms.overlong import OverlongPunishment
from ngrpo.rollout.dynamic_sampling import DynamicSampling, every_group
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.training.critic_update import CriticSettings

CONF = ROOT / "conf"


def algorithm(**settings: Any) -> Algorithm:
    parts = {"advantage": advantage.group_centred, "ratio": ratio.token, "clip": clip.clipped_surrogate}
    return Algorithm(**{**parts, "aggregate": aggregate.token_mean, "kl": kl.k3, **settings})


def assert_refused(error: BaseException, *words: str) -> None:
    """One sentence on one line, with every word in it."""
    message = str(error)
    assert message.endswith(".")
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "function",
    [advantage.group_centred, partial(advantage.group_standardised, eps=1e-4)],
    ids=["plain", "partial"],
)
def test_group_of_one_is_refused_where_rewards_are_compared(function: Any) -> None:
    check_group(algorithm(advantage=function), RolloutSettings(group_size=2))
    with pytest.raises(SettingError) as caught:
        check_group(algorithm(advantage=function), RolloutSettings(group_size=1))
    name = getattr(function, "func", function).__name__
    assert_refused(caught.value, "rollout.group_size=1 ", f"algo.advantage={name} ", "2 or more")


@pytest.mark.parametrize("function", [partial(subsets.passk, k=4), partial(subsets.maxk, k=4)])
def test_a_group_without_a_rollout_beside_the_subset_is_refused(function: Any) -> None:
    check_group(algorithm(advantage=function), RolloutSettings(group_size=5))
    for size in (3, 4):
        with pytest.raises(SettingError) as caught:
            check_group(algorithm(advantage=function), RolloutSettings(group_size=size))
        assert_refused(caught.value, f"rollout.group_size={size} ", "algo.advantage.k=4 ", "5 or more")
    with pytest.raises(SettingError) as caught:
        check_group(algorithm(advantage=partial(function, k=0)), RolloutSettings(group_size=4))
    assert_refused(caught.value, "algo.advantage.k=0 ", "1 or more")
    with pytest.raises(SettingError, match="algo.advantage.k=2"):  # the function's own default
        check_group(algorithm(advantage=function.func), RolloutSettings(group_size=2))


@pytest.mark.parametrize(("kept", "size", "refused"), [(2, 3, False), (4, 4, True), (1, 4, True)])
def test_a_selection_inside_a_group_leaves_some_and_compares_some(kept: int, size: int, refused: bool) -> None:
    chosen = algorithm(within_group=partial(shortest, k=kept))
    with pytest.raises(SettingError) if refused else nullcontext() as caught:
        check_group(chosen, RolloutSettings(group_size=size))
    if refused:
        assert_refused(caught.value, f"algo.within_group.k={kept} ", f"rollout.group_size={size} ", "2 or more")
    of_subsets = algorithm(advantage=partial(subsets.maxk, k=4), within_group=partial(shortest, k=3))
    with pytest.raises(SettingError, match=r"algo.within_group.k=3 leaves .*algo.advantage.k=4"):
        check_group(of_subsets, RolloutSettings(group_size=8))


def test_what_the_numbers_of_own_functions_mean_is_not_guessed() -> None:
    """Names that functions of the package have too, for something else."""

    def select(rewards: Tensor, lengths: Tensor, k: float) -> Tensor:
        return rewards.masked_fill(lengths > k, torch.nan)

    def shifted(log_ratio: Tensor, advantage: Tensor, low: float) -> clip.Surrogate:
        return clip.unclipped(log_ratio + low, advantage)

    def centred(rewards: Tensor, eps: float) -> Tensor:
        return rewards - rewards.nanmean(-1, keepdim=True) - eps

    parts = {"within_group": partial(select, k=4000), "clip": partial(shifted, low=-0.1)}
    own = algorithm(**parts, advantage=partial(centred, eps=0.0))
    check_group(own, RolloutSettings(group_size=8))
    check_clip(own)
    with pytest.raises(SettingError, match=r"^algo\.within_group\.k=2 "):  # the function's own default
        check_group(algorithm(within_group=shortest), RolloutSettings(group_size=2))


def test_rewards_beyond_float32_are_refused_before_they_are_given() -> None:
    """Their steps would be skipped; finite summands may be beyond it together."""
    weighted = [WeightedTerm("overlong", 1e6, OverlongPunishment(8, 4))]
    check_rewards(algorithm(), bounds_of(MathReward(correct=3e38), weighted))
    for reward in (MathReward(correct=1e39), MathReward(wrong=-3.4028e38)):
        weighted = [WeightedTerm("overlong", 1e34, OverlongPunishment(8, 4))]
        with pytest.raises(SettingError) as caught:
            check_rewards(algorithm(), bounds_of(reward, weighted))
        assert_refused(caught.value, "reward and reward_terms give from ", "inf", "reward_terms.<name>.weight smaller")


@pytest.mark.parametrize(("bounds", "refused"), [((0.0, 1.0), False), ((-1.0, 1.0), True), (None, False)])
def test_negative_rewards_are_refused_where_they_mean_nothing(bounds: Any, refused: bool) -> None:
    check_rewards(algorithm(), bounds)
    with pytest.raises(SettingError) if refused else nullcontext() as caught:
        check_rewards(algorithm(advantage=advantage.maxrl), bounds)
    if refused:
        assert_refused(caught.value, "as little as -1,", "algo.advantage=maxrl ", "reward=math")


def test_group_of_one_passes_without_a_comparison() -> None:
    check_group(algorithm(advantage=lambda rewards: rewards), RolloutSettings(group_size=1))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"credit": DiscountedReturns(), "ratio": ratio.sequence},
            ["algo.credit=DiscountedReturns ", "algo.ratio=sequence ", "algo/ratio=token"],
        ),
        (
            {"clip": clip.dppo_tv, "ratio": ratio.sequence_token},
            ["algo.clip=dppo_tv ", "algo.ratio=sequence_token ", "algo/ratio=token"],
        ),
        ({"kl_in": "reward"}, ["algo.kl_in=reward ", "algo.kl_coef=0 ", "algo.kl_in=loss"]),
        (
            {"kl_in": "reward", "kl_coef": 0.1, "advantage": partial(advantage.by_correctness, right=1.0)},
            ["algo.kl_in=reward ", "algo.advantage=by_correctness ", "algo.kl_in=loss"],
        ),
        (
            {"kl_in": "reward", "kl_coef": 0.1, "advantage": advantage.maxrl},
            ["algo.kl_in=reward ", "algo.advantage=maxrl ", "algo.kl_in=loss"],
        ),
    ],
    ids=[
        "token credit, sequence ratio",
        "token clip, sequence ratio",
        "no coefficient",
        "thresholded reward",
        "reward below 0",
    ],
)
def test_parts_that_contradict_each_other_are_refused(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SettingError) as caught:
        check_algorithm(algorithm(**settings))
    assert_refused(caught.value, *words)


@pytest.mark.parametrize(
    "settings",
    [
        {"credit": DiscountedReturns(), "ratio": ratio.sequence_token},
        {"kl_in": "reward", "kl_coef": 0.1},
        {"kl_in": "reward", "kl_coef": 0.1, "advantage": advantage.by_correctness, "credit": DiscountedReturns()},
        {"ratio": ratio.sequence, "entropy_coef": 0.1, "kl_coef": 0.1},
    ],
    ids=["gspo-token", "kl in reward", "kl in token rewards", "gspo with everything else"],
)
def test_parts_that_fit_together_pass(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    check_algorithm(algorithm(**settings))
    assert not caplog.records


def test_k1_in_the_loss_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    check_algorithm(algorithm(kl=kl.k1))
    assert not caplog.records
    check_algorithm(algorithm(kl=partial(kl.k1), kl_coef=0.1))
    assert "algo/kl=k1" in caplog.text


def test_a_critic_is_needed_exactly_where_it_is_used() -> None:
    critic, by_values = CriticSettings(torch.optim.SGD), algorithm(credit=GeneralisedAdvantage())
    check_critic(by_values, critic)
    check_critic(algorithm(), None)
    with pytest.raises(SettingError) as caught:
        check_critic(by_values, None)
    assert_refused(caught.value, "algo.credit=GeneralisedAdvantage ", "critic=null", "critic=value_head")
    with pytest.raises(SettingError) as caught:
        check_critic(algorithm(), critic)
    assert_refused(caught.value, "algo.credit=Broadcast ", "critic=null")


def test_terms_are_refused_where_the_rewards_size_says_what_is_right() -> None:
    by_size = algorithm(advantage=partial(advantage.by_correctness, right=1.0))
    terms = [WeightedTerm("overlong", 1.0, OverlongPunishment(8, 4))]
    check_shaping(by_size, [])
    check_shaping(algorithm(), terms)
    with pytest.raises(SettingError) as caught:
        check_shaping(by_size, terms)
    assert_refused(caught.value, "reward_terms=['overlong']", "algo.advantage=by_correctness", "reward_terms=[]")


@pytest.mark.parametrize(("prompts", "steps", "ranks"), [(8, 4, 1), (8, 4, 2), (8, 1, 8), (64, 4, 8)])
def test_prompts_that_ranks_and_steps_share_pass(prompts: int, steps: int, ranks: int) -> None:
    check_ranks(algorithm(prompts_per_batch=prompts, optimizer_steps=steps), ranks)


@pytest.mark.parametrize(("prompts", "steps", "ranks"), [(8, 4, 4), (8, 1, 3), (6, 2, 2)])
def test_prompts_that_cannot_be_shared_are_refused(prompts: int, steps: int, ranks: int) -> None:
    with pytest.raises(SettingError) as caught:
        check_ranks(algorithm(prompts_per_batch=prompts, optimizer_steps=steps), ranks)
    wanted = (
        f"algo.prompts_per_batch={prompts} ",
        f"algo.optimizer_steps={steps} ",
        f"{ranks} data-parallel processes",
    )
    assert_refused(caught.value, *wanted, f"multiple of {steps * ranks}")


def test_truncated_sampling_without_a_record_is_refused() -> None:
    recorded = (TokenSampling(top_k=20), TokenSampling(top_p=0.9), MinPSampling())
    for strategy in (TokenSampling(), NeighborMixing(), TokenSampling(20, largest_support=1), *recorded):
        check_support(strategy)
    for refused in (strategy.unrecorded() for strategy in recorded):
        with pytest.raises(SettingError) as caught:
            check_support(refused)
        assert_refused(caught.value, str(refused), "exploration.largest_support=128")


@pytest.mark.parametrize(
    "strategy", [TokenSampling(top_k=1), TokenSampling(top_p=0.9, largest_support=1), MinPSampling(1.0)], ids=str
)
def test_sets_of_one_token_are_refused_which_teach_nothing(strategy: Exploration) -> None:
    with pytest.raises(SettingError) as caught:
        check_support(strategy)
    assert_refused(caught.value, str(strategy), "keep more tokens")
    step = strategy.step(torch.randn(3, 20), step_context(3))
    assert strategy.log_prob(torch.randn(3, 20), step, step_context(3)).tolist() == [0.0] * 3


def test_context_is_the_sum_of_prompt_and_response() -> None:
    config = Qwen2Config(max_position_embeddings=256)
    check_context(config, 128, 128)
    with pytest.raises(SettingError) as caught:
        check_context(config, 128, 129)
    assert_refused(caught.value, "data.max_prompt_tokens=128 ", "rollout.max_new_tokens=129 ", "256 positions")


def test_too_wide_a_mixture_is_refused_by_the_setting_of_its_width() -> None:
    """Not by another one that happens to be the same number."""
    with pytest.raises(SettingError, match=r"^exploration\.k=99 is more than the 50 tokens"):
        check_mixtures(NeighborMixing(k=99, refresh_every=99), Qwen2Config(vocab_size=50))


def test_model_without_a_limit_passes() -> None:
    check_context(PretrainedConfig(), 10**6, 10**6)


@cache
def defaults() -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose("train", overrides=["trainer=cpu", "data.eval_problems=2", "trainer.threads=1"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rollout.group_size": 1}, ["rollout.group_size=1 ", "group_standardised"]),
        ({"rollout.group_size": 0}, ["rollout.group_size=0 "]),
        ({"rollout.max_new_tokens": 0}, ["rollout.max_new_tokens=0 "]),
        (
            {"rollout.max_new_tokens": 10**6},
            ["rollout.max_new_tokens=1000000 ", "data.max_prompt_tokens=128 "],
        ),
        ({"rollout.temperature": 0.0}, ["rollout.temperature=0.0 "]),
        ({"rollout.engine.max_batch_size": 0}, ["rollout.engine.max_batch_size=0 "]),
        (
            {"exploration.top_k": 5, "exploration.largest_support": 0},
            ["top_k=5", "exploration.largest_support=128"],
        ),
        ({"exploration.top_p": 2.0}, ["exploration.top_p=2.0 "]),
        ({"algo.prompts_per_batch": 6}, ["algo.prompts_per_batch=6 ", "algo.optimizer_steps=4 "]),
        (
            {"algo.prompts_per_batch": 4, "trainer.devices": 2},
            ["algo.prompts_per_batch=4 ", "2 data-parallel processes"],
        ),
        ({"algo.kl_coef": -1.0}, ["algo.kl_coef=-1.0 "]),
        ({"algo.kl_in": "reward", "algo.kl_coef": 0.0}, ["algo.kl_in=reward "]),
        ({"algo.zero_signal": "hide"}, ["algo.zero_signal=hide "]),
        ({"trainer.iterations": 0}, ["trainer.iterations=0 "]),
        ({"trainer.iterations": "???"}, ["trainer.iterations"]),
        ({"trainer.microbatch_tokens": 0}, ["trainer.microbatch_tokens=0 "]),
        ({"trainer.optimzer": 1}, ["trainer.optimzer"]),
        ({"data.max_prompt_tokens": 0}, ["data.max_prompt_tokens=0 "]),
        ({"data.path": "/nowhere.jsonl", "data.max_prompt_tokens": 128}, ["data.path='/nowhere.jsonl' "]),
        ({"model.path": "/nowhere"}, ["model.path=/nowhere "]),
        ({"model.dtype": "float8"}, ["model.dtype=float8 "]),
        (
            {"model.dtype": "float16"},
            ["model.dtype=float16 ", "set model.dtype=float32 and trainer.precision=16-mixed"],
        ),
        (
            {"model.dtype": "float16", "trainer.precision": "16-mixed"},
            ["model.dtype=float16 ", "set model.dtype=float32 and trainer.precision=16-mixed"],
        ),
        (
            {"model.dtype": "bfloat16", "trainer.precision": "16-mixed"},
            ["trainer.precision=16-mixed ", "model.dtype=bfloat16 ", "set model.dtype=float32"],
        ),
        ({"trainer.precision": "16-true"}, ["trainer.precision=16-true ", "16-mixed"]),
        ({"rollout.engine.dtype": "half"}, ["rollout.engine.dtype=half ", "float16"]),
        ({"reward.workers": 0}, ["reward.workers"]),
        ({"callbacks.checkpoint.keep": 0}, ["keep=0 "]),
        ({"callbacks.evaluation.evaluator.samples": 0}, ["evaluator.samples=0 "]),
        ({"ckpt": "latest"}, ["ckpt=latest "]),
        ({"ckpt": "/nowhere"}, ["ckpt=/nowhere "]),
    ],
    ids=str,
)
def test_train_refuses_before_any_model_is_loaded(
    changes: dict[str, Any], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(self: ModelSource) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(ModelSource, "load", load)
    # A process count of 2 must be refused by arithmetic, not by starting two processes.
    monkeypatch.setattr(torch.distributed, "init_process_group", load)
    config = defaults().copy()
    for key, value in changes.items():
        OmegaConf.update(config, key, value, force_add=True)
    with pytest.raises(SettingError) as caught:
        train(config, tmp_path / "run", {}, tmp_path)
    assert_refused(caught.value, *words)


def test_train_gets_as_far_as_the_model_with_good_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the refusals above are not due to something else."""

    def load(self: ModelSource) -> None:
        raise InterruptedError("a model was loaded")

    monkeypatch.setattr(ModelSource, "load", load)
    with pytest.raises(InterruptedError, match="a model was loaded"):
        train(defaults(), tmp_path / "run", {"algo": "grpo"}, tmp_path)


def test_train_refuses_a_checkpoint_that_already_has_all_iterations(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints" / "iteration-40"
    folder.mkdir(parents=True)
    config = defaults().copy()
    config.ckpt = "latest"
    with pytest.raises(SettingError) as caught:
        train(config, tmp_path / "run", {}, tmp_path)
    assert_refused(caught.value, "trainer.iterations=40 ", f"ckpt={folder} ")


@pytest.mark.parametrize(("several", "ranks", "refused"), [(True, 8, False), (False, 1, False), (False, 2, True)])
def test_an_engine_for_one_process_is_refused_in_several(several: bool, ranks: int, refused: bool) -> None:
    engine = SimpleNamespace(several_ranks=several)
    if not refused:
        assert check_engine(engine, ranks) is None
        return
    with pytest.raises(SettingError) as caught:
        check_engine(engine, ranks)
    assert_refused(caught.value, "SimpleNamespace ", "trainer.num_nodes=2", "own_process=true", "rollout=torch")


def test_a_truncated_strategy_that_scores_its_support_is_not_refused() -> None:
    check_support(GumbelSoftThinking(top_k=2, top_p=0.5))


def test_equal_groups_are_warned_of_once_and_only_where_they_are_equal(caplog: pytest.LogCaptureFixture) -> None:
    for strategy in (SoftThinking(rate=0.5), GaussianSoftTokens(tau=0.0001), TokenSampling()):
        warn_of_equal_groups(strategy)
    assert caplog.records == []
    warn_of_equal_groups(SoftThinking())
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "identical" in record.getMessage()
    assert "exploration.rate < 1" in record.getMessage()


def test_training_asks_the_engine_whether_the_records_of_a_batch_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def check_load(self: TorchEngine, *load: Any) -> None:
        asked.append(load)
        raise SettingError("rollout.engine has no room.")

    monkeypatch.setattr(TorchEngine, "check_load", check_load)
    config = defaults().copy()
    with pytest.raises(SettingError, match="no room"):
        train(config, tmp_path / "run", {}, tmp_path)
    rollouts = config.algo.prompts_per_batch * config.rollout.group_size
    assert asked == [(TokenSampling(), rollouts, config.rollout.max_new_tokens)]


def test_prefetched_rollouts_need_an_engine_beside_the_trainer_and_weights() -> None:
    ahead, engine = RolloutSettings(ahead=1), SimpleNamespace(concurrent=True)
    selection = DynamicSampling(every_group)
    plain, weighed = algorithm(), algorithm(correction=Truncate())
    check_ahead(ahead, engine, weighed, selection, EveryProblem())
    check_ahead(RolloutSettings(), SimpleNamespace(concurrent=False), plain, selection, EveryProblem())
    for arguments, words in (
        (
            (SimpleNamespace(concurrent=False), weighed, selection, EveryProblem()),
            ("rollout.engine=", "own_process=true"),
        ),
        ((engine, plain, selection, EveryProblem()), ("algo.correction=NoCorrection ", "algo/correction=truncate")),
        ((engine, weighed, DynamicSampling(every_group, 2), EveryProblem()), ("selection.max_refills=2 ", "=0")),
        ((engine, weighed, selection, SampledByPassRate()), ("data.curriculum=", "data/curriculum=every_problem")),
    ):
        with pytest.raises(SettingError) as caught:
            check_ahead(ahead, *arguments)
        assert_refused(caught.value, "rollout.ahead=1 ", *words)


def test_more_than_one_batch_ahead_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^rollout\.ahead=2 .*0 or 1\.$"):
        RolloutSettings(ahead=2)
