"""Steps that are not finite are skipped, kept, and end the run when there is nothing else."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra import compose, initialize_config_dir
from lightning import Callback, Trainer
from omegaconf import OmegaConf
from places import ROOT
from poison import PoisonGradient
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from update_probe import ALGORITHMS, Case, GivenExperience

from ngrpo.algo.adaptive_entropy import AdaptiveEntropy
from ngrpo.algo.advantage import group_centred
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.config.check import checked
from ngrpo.config.schema import register
from ngrpo.distributed.collectives import Ranks
from ngrpo.entrypoints.replay_step import replay
from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.training.module import PolicyOptimization
from ngrpo.training.nonfinite_guard import StepGuard
from ngrpo.training.skipped_steps import FOLDER, load
from ngrpo.training.update_settings import UpdateSettings
from ngrpo.types.problems import PromptBatch

CONF = ROOT / "conf"


@pytest.fixture
def case(make_engine, bound, requests, sampling, tiny_model_path: Path) -> Case:
    engine = make_engine()
    rollouts = engine.generate(requests[:16], sampling, bound(engine, NeighborMixing(rate=0.3)))
    rewards = torch.tensor([[1.0, 0.0, 1.0, 0.0]] * 4)
    return Case(str(tiny_model_path), "grpo", sampling.temperature, 300, rollouts, rewards)


class Weights(Callback):
    """Keeps a copy of one weight matrix, the number of skipped steps and the loss after each iteration."""

    def __init__(self) -> None:
        self.after: list[torch.Tensor] = []
        self.skipped: list[float] = []
        self.losses: list[float] = []
        self.gradients: list[torch.Tensor] = []
        self.scales: list[float] = []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer) -> None:
        self.gradients.append(pl_module.policy.lm.lm_head.weight.grad.clone())

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        self.after.append(pl_module.policy.lm.lm_head.weight.detach().clone())
        self.skipped.append(float(trainer.callback_metrics["policy/skipped_steps"]))
        self.losses.append(float(trainer.callback_metrics["policy/loss"]))
        self.scales.append(float(trainer.callback_metrics.get("policy/loss_scale", 1.0)))


def fit(
    case: Case,
    guard: StepGuard,
    rewards: dict[int, torch.Tensor],
    poisoned: list[int],
    iterations: int,
    precision: str = "32-true",
    algorithm: Algorithm = ALGORITHMS["grpo"],
) -> Weights:
    """Two optimiser steps an iteration, on other rewards in some iterations, with NaN gradients in others."""
    kept = Weights()
    trainer = Trainer(
        accelerator="cpu", devices=1, max_epochs=1, callbacks=[PoisonGradient(poisoned), kept], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    module = PolicyOptimization(
        ModelSource(case.model_path, **case.source), replace(algorithm, optimizer_steps=2), NeighborMixing(),
        partial(torch.optim.AdamW, lr=0.01),
        UpdateSettings(
            temperature=case.temperature, microbatch_tokens=case.microbatch_tokens, precision=precision
        ), guard=guard,
    )  # fmt: skip
    batches = [PromptBatch([], 0, iteration) for iteration in range(iterations)]
    for batch in batches:
        changed = replace(case, rewards=rewards.get(batch.iteration, case.rewards))
        batch.experience = GivenExperience(changed, 0, 1)
    trainer.fit(module, DataLoader(batches, batch_size=None))
    return kept


def test_a_nan_gradient_moves_nothing_and_is_counted(case: Case, tmp_path: Path) -> None:
    kept = fit(case, StepGuard(3, tmp_path), {}, poisoned=[1], iterations=3)
    assert kept.skipped == [0, 2, 0]
    assert torch.equal(kept.after[0], kept.after[1])
    assert not torch.equal(kept.after[1], kept.after[2])
    assert kept.after[2].isfinite().all()
    files = sorted(path.name for path in (tmp_path / "bad_steps").iterdir())
    assert files == ["iteration-2-step-1-rank-0.pt", "iteration-2-step-2-rank-0.pt"]


def test_an_infinite_reward_skips_its_own_step_only(case: Case, tmp_path: Path) -> None:
    rewards = case.rewards.clone()
    rewards[3, 2] = math.inf
    kept = fit(case, StepGuard(1_000, tmp_path), {0: rewards}, poisoned=[], iterations=1)
    assert kept.skipped == [1]
    assert math.isfinite(kept.losses[0])
    (file,) = (tmp_path / "bad_steps").iterdir()
    bad = load(file)
    assert (bad.iteration, bad.step, bad.reason) == (0, 1, "a reward is infinite")
    assert bad.problems == [2] * 4 + [3] * 4


def test_a_kept_step_is_what_was_learned_from(case: Case, tmp_path: Path) -> None:
    fit(case, StepGuard(3, tmp_path, {"seed": 5}), {}, poisoned=[0], iterations=1)
    bad = load(tmp_path / "bad_steps" / "iteration-1-step-2-rank-0.pt")
    assert bad.settings == {"seed": 5}
    assert bad.reason == "policy/grad_norm nan"
    for sample, rollout in zip(bad.samples, case.rollouts[8:], strict=True):
        assert torch.equal(sample.rollout.response_ids, rollout.response_ids)
        assert torch.equal(sample.rollout.mixture.record.weights, rollout.mixture.record.weights)
        assert sample.rollout.stop_reason is rollout.stop_reason
        assert sample.old_log_prob is not None
        assert sample.advantage.shape == (1, rollout.length)


def test_too_many_in_a_row_end_the_run_and_a_good_one_between_does_not(case: Case, tmp_path: Path) -> None:
    fit(case, StepGuard(3, tmp_path), {}, poisoned=[0, 2, 4], iterations=5)
    with pytest.raises(RunError) as caught:
        fit(case, StepGuard(3, tmp_path), {}, poisoned=[1, 2], iterations=5)
    assert caught.value.everywhere
    assert str(caught.value) == (
        "trainer.max_bad_steps=3 optimiser steps in a row were skipped, the last for its policy/grad_norm nan"
        " (iteration 3, optimiser step 1); lower trainer.optimizer.lr, or look at them with ngrpo replay-step "
        f"{tmp_path}/bad_steps; there is no checkpoint to resume from."
    )


def test_rewards_that_are_too_large_are_named_and_no_learning_rate(case: Case, tmp_path: Path) -> None:
    algorithm = replace(ALGORITHMS["grpo"], advantage=group_centred)
    with pytest.raises(RunError) as caught:
        fit(case, StepGuard(1, tmp_path), {0: case.rewards * 1e30}, poisoned=[], iterations=1, algorithm=algorithm)
    assert str(caught.value) == (
        "trainer.max_bad_steps=1 optimiser steps in a row were skipped, the last for its policy/grad_norm inf, an "
        "advantage is 5e+29 (iteration 1, optimiser step 1); make rewards and reward_terms smaller, or look at them "
        f"with ngrpo replay-step {tmp_path}/bad_steps; there is no checkpoint to resume from."
    )


@pytest.mark.parametrize("size", [1e-8, 1e-12])
def test_advantages_of_which_nothing_is_learned_are_told_once(
    case: Case, size: float, caplog: pytest.LogCaptureFixture
) -> None:
    fit(case, StepGuard(), {0: case.rewards * size, 1: case.rewards * size}, poisoned=[], iterations=2)
    assert caplog.text.count("so that next to nothing is learned: the rewards of a group differ by too little") == 1


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_model_that_overflows_float16_is_told_by_its_module(case: Case, compiled: bool, tmp_path: Path) -> None:
    """A loss that no scale can help; in bfloat16 the same weights train."""
    model = AutoModelForCausalLM.from_pretrained(case.model_path)
    with torch.no_grad():
        large = model.model.layers[1].mlp.up_proj.weight
        large.mul_(6e4 / large.abs().max())
    model.save_pretrained(tmp_path / "large")
    case = replace(case, model_path=str(tmp_path / "large"), source={"compile": compiled})
    with pytest.raises(RunError) as caught:
        fit(case, StepGuard(1, tmp_path), {}, poisoned=[], iterations=1, precision="16-mixed")
    assert str(caught.value).startswith(
        "trainer.max_bad_steps=1 optimiser steps in a row were skipped, the last for its policy/loss nan, policy/"
        "grad_norm nan, the output of lm.model.layers.1.mlp.up_proj is beyond the range of float16, so set trainer."
        "precision=bf16-mixed and rollout.engine.dtype=bfloat16 (iteration 1, optimiser step 1); "
    )
    fit(case, StepGuard(1, tmp_path), {}, poisoned=[], iterations=1, precision="bf16-mixed")


def test_the_scale_takes_overflows_and_the_guard_what_no_scale_helps(case: Case, tmp_path: Path) -> None:
    """A gradient of NaN halves the scale down to 1, from where on it is bad."""
    guard = StepGuard(1, tmp_path)
    kept = fit(case, guard, {}, poisoned=[*range(8)], iterations=8, precision="16-mixed")
    assert kept.skipped == [0] * 8
    assert not list(tmp_path.iterdir())
    assert all(torch.equal(one, kept.after[0]) for one in kept.after)
    assert kept.scales == [2.0 ** (14 - 2 * number) for number in range(8)]
    with pytest.raises(RunError, match="the last for its policy/grad_norm nan"):
        fit(case, guard, {}, poisoned=[*range(9)], iterations=9, precision="16-mixed")


@pytest.mark.parametrize("spoiled", [("policy",), ("critic",), ("policy", "critic")])
def test_policy_and_critic_make_one_step_whichever_of_them_is_spoiled(
    spoiled: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The finite critic of a policy that is not does not make the step a good one, nor do both make it two."""
    guard = begun(3, tmp_path)

    def step(bad: tuple[str, ...]) -> list[bool]:
        admits = guard.for_minibatch([], alone)
        values = {name: math.nan if name in bad else 0.0 for name in ("policy", "critic")}
        return [admits({f"{name}/loss": torch.tensor(value)}) for name, value in values.items()]

    expected = ["policy" not in spoiled, "critic" not in spoiled]
    assert [step(spoiled), step(spoiled), step(())] == [expected, expected, [True, True]]
    assert guard.skipped == 2
    assert [step(spoiled), step(spoiled)] == [expected, expected]
    caplog.clear()
    with pytest.raises(RunError, match=r"max_bad_steps=3 .* \(iteration 1, optimiser step 6\)"):
        step(spoiled)
    assert caplog.messages[0] == f"iteration 1, optimiser step 6 was skipped: {spoiled[0]}/loss nan"
    kept = sorted((tmp_path / FOLDER).iterdir())
    assert [load(path).step for path in kept] == [0, 1, 3, 4, 5]
    assert {load(path).reason for path in kept} == {f"{spoiled[0]}/loss nan"}


def begun(limit: int, run: Path) -> StepGuard:
    """Returns a guard in an iteration without rollouts."""
    guard = StepGuard(limit, run)
    guard.begin(0, SimpleNamespace(rollouts=[], keys=[], infinite=torch.tensor([])))
    return guard


def alone(value: torch.Tensor, operation: str) -> torch.Tensor:
    """Reduces over the ranks where there is one."""
    return value


def test_limit_is_checked() -> None:
    with pytest.raises(SettingError, match=r"^trainer\.max_bad_steps=0 would stop before the first step"):
        StepGuard(0)


def test_replay_names_the_sample_that_is_not_finite(case: Case, tmp_path: Path) -> None:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = checked(compose("train", overrides=["exploration=neighbor", f"model.path={case.model_path}"]))
    fit(case, StepGuard(3, tmp_path, OmegaConf.to_container(config)), {}, poisoned=[0], iterations=1)
    first = replay(load(tmp_path / "bad_steps" / "iteration-1-step-1-rank-0.pt"), None)
    assert all(one.finite for one in first)  # the gradient was made NaN from outside
    assert [one.problem for one in first] == [0] * 4 + [1] * 4
    bad = load(tmp_path / "bad_steps" / "iteration-1-step-2-rank-0.pt")
    assert all(one.finite for one in replay(bad, None))
    bad.samples[5].old_log_prob[2] = math.nan
    reports = replay(bad, None)
    assert [one.finite for one in reports] == [True] * 5 + [False] + [True] * 2


def test_replay_has_the_coefficient_that_the_step_had(case: Case, tmp_path: Path) -> None:
    register()
    chosen = ["algo=adaptive_entropy", "exploration=neighbor", f"model.path={case.model_path}"]
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = checked(compose("train", overrides=chosen))
    algorithm = replace(ALGORITHMS["grpo"], adaptive_entropy=AdaptiveEntropy(target=99.0, delta=0.5))
    fit(case, StepGuard(3, tmp_path, OmegaConf.to_container(config)), {}, [1], 2, algorithm=algorithm)
    bad = load(tmp_path / "bad_steps" / "iteration-2-step-1-rank-0.pt")
    assert bad.algorithm["adaptive_entropy"]["coefficient"] == 1.0  # after two steps
    state = {"coefficient": 0.5, "last": 0.0}
    once, twice, never = (
        [one.loss for one in replay(replace(bad, algorithm=learned), None)]
        for learned in ({"adaptive_entropy": state}, {"adaptive_entropy": state | {"coefficient": 1.0}}, {})
    )
    for half, whole, without in zip(once, twice, never, strict=True):
        assert whole < half < without
        assert whole - without == pytest.approx(2 * (half - without), rel=1e-4)
    damaged = replace(bad, algorithm={"adaptive_entropy": {}})
    with pytest.raises(SettingError, match=r"cannot be read from the step \('coefficient'\); it is damaged.$"):
        replay(damaged, None)


def test_what_is_no_skipped_step_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(b"cos\nsystem\n.")
    with pytest.raises(SettingError, match=f"^{path} holds no skipped step; give a file of a run's bad_steps folder.$"):
        load(path)


def test_memory_that_runs_out_in_the_middle_leaves_the_gradient_of_an_undisturbed_step(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = fit(replace(case, microbatch_tokens=150), StepGuard(), {}, [], iterations=1)
    run, calls = PolicyOptimization.manual_backward, []

    def backward(self: PolicyOptimization, loss: torch.Tensor) -> None:
        calls.append(self.budget.tokens)
        run(self, loss)
        if calls == [300, 300]:  # after half of the minibatch
            raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(PolicyOptimization, "manual_backward", backward)
    disturbed = fit(case, StepGuard(), {}, [], iterations=1)
    assert calls[:2] == [300, 300]
    assert set(calls[2:]) == {150}
    for expected, found in zip(straight.gradients, disturbed.gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("tensor_rank", "files"), [(0, ["iteration-1-step-1-rank-3.pt"]), (1, [])])
def test_a_tensor_group_keeps_a_skipped_step_once(
    tensor_rank: int, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it have the same samples; the file's number is that of the data rank."""
    monkeypatch.setattr("ngrpo.training.nonfinite_guard.ranks", lambda: Ranks(3, 4, tensor_rank, 2))
    guard = begun(2, tmp_path)
    assert not guard.for_minibatch([], alone)({"policy/loss": torch.tensor(math.nan)})
    assert guard.skipped == 1
    assert [path.name for path in (tmp_path / FOLDER).glob("*")] == files
