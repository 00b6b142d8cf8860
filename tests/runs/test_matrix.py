"""Every algorithm and every strategy trains the demo for one iteration: finite, and replayed exactly."""

import math
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from places import ROOT
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ngrpo.config.permissions import typed
from ngrpo.config.schema import register
from ngrpo.entrypoints.train import train

ALGORITHMS = sorted(path.stem for path in (ROOT / "conf/algo").glob("*.yaml") if path.stem != "base")
OUTSIDE = ["exploration=custom", "exploration._target_=blend_top_two.BlendTopTwo"]
EXPLORATIONS = [
    ["exploration=neighbor", "exploration.rate=0.5"],
    ["exploration=neighbor_annealed", "exploration.rate_start=0.5"],
    ["exploration=neighbor_entropy", "exploration.rate_min=0.2"],
    ["exploration=argmax_gate", "exploration.rate=0.5"],
    ["exploration=soft", "exploration.rate=0.5"],
    ["exploration=gumbel"],
    ["exploration=gumbel_released"],
    ["exploration=gaussian"],
    ["exploration=gaussian_fuzzy"],
    ["exploration=gaussian_top_k"],
    ["exploration=hrpo"],
    ["exploration=latent_gumbel"],
    ["exploration=neighbor_selective", "exploration.rate=0.9"],
    OUTSIDE,
]
STRATEGIES = {path.stem for path in (ROOT / "conf/exploration").glob("*.yaml")}
OTHERS = sorted(STRATEGIES - {"min_p", *(chosen[0].split("=")[1] for chosen in EXPLORATIONS)})
"""Presets that differ from those by settings alone."""
QUIET = [f"callbacks.{name}=null" for name in ("evaluation", "export", "checkpoint", "rollout_report", "progress")]
QUIET += ["reward.workers=1"]  # each takes longer to start than to judge all that there is
CASES = [(algo, ["exploration=token"]) for algo in ALGORITHMS] + [
    (algo, chosen) for chosen in EXPLORATIONS for algo in ("grpo", "gspo", "ngrpo")
]

CASES += [("grpo", [f"exploration={name}"]) for name in OTHERS if name != "token"]
NEIGHBOR = EXPLORATIONS[0]
SWITCHES = ["algo/kl=weighted_k3", "algo.kl_coef=0.01", "algo.entropy_coef=0.01", "algo.zero_signal=drop"]
CASES += [
    ("rloo", ["exploration=gaussian"]),
    # Trees: with mixtures, with a critic, whole trees replaced, with a density, with whatever weighs or chooses.
    ("grpo", [*NEIGHBOR, "rollout/scheduler=mixtures"]),
    ("ppo", [*NEIGHBOR, "rollout/scheduler=at_share"]),
    ("dapo", [*NEIGHBOR, "rollout/scheduler=surprise", "selection.max_refills=2"]),
    ("grpo", [*NEIGHBOR, "rollout/scheduler=latr"]),
    ("gspo", [*NEIGHBOR, "rollout/scheduler=latr", "algo.shared_tokens=each", "rollout.temperature=0.7"]),
    ("grpo", [*NEIGHBOR, "rollout/scheduler=entropy"]),
    ("treepo", ["exploration=gumbel"]),
    ("treepo", ["exploration=hrpo", "algo.shared_tokens=once", "algo.optimizer_steps=4"]),
    ("gfpo", [*NEIGHBOR, "rollout/scheduler=segments"]),
    ("gfpo", [*NEIGHBOR, "algo/within_group=more_of_hard_prompts", "algo.within_group.sizes=[3,3,2,2]"]),
    ("forking", [*NEIGHBOR, "rollout/scheduler=segments", "algo/correction=reject"]),
    ("outcome_bonus", [*NEIGHBOR, "rollout/scheduler=at_share", "algo/credit=tree_centred"]),
    ("gspo", [*NEIGHBOR, "rollout/scheduler=prefix_sampling"]),
    # The critic's inputs: mixtures, and learned ones; whole groups of a strategy's rollouts replaced.
    ("ppo", NEIGHBOR),
    ("ppo", ["exploration=hrpo"]),
    ("dapo", ["exploration=gumbel"]),
    ("latent_grpo", ["exploration=latent_gumbel"]),
    ("rloo", [*NEIGHBOR, "algo.kl_in=reward", "algo.kl_coef=0.05"]),
    ("ngrpo", [*NEIGHBOR, *SWITCHES, "algo/correction=mask", "algo.correction.level=geometric"]),
]


@pytest.mark.parametrize(
    ("algo", "exploration"), CASES, ids=["-".join([a, *(o.split("=")[1] for o in e)]) for a, e in CASES]
)
def test_one_iteration(algo: str, exploration: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    register()
    overrides = [f"algo={algo}", *exploration, "debug=fast", "trainer=cpu", "trainer.iterations=1", *QUIET]
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        config = compose("train", overrides=[*overrides, "data.eval_problems=1"])
    config.allow_targets = typed(overrides)
    train(config, tmp_path, {"algo": algo}, tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    last = {tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]}
    assert all(math.isfinite(value) for value in last.values())
    # A Gaussian log-density is some 30 times as sensitive to the logits as a token's log-prob.
    if any("scheduler" in override for override in exploration) or algo == "treepo":
        assert last["rollout/branch_depth"] > 0 or "prefix_sampling" in exploration[-1]
    assert last["rollout/mismatch_max"] < (3e-3 if "gaussian" in exploration[0] else 1e-4)
    assert last["policy/sequences"] > 0
    if exploration != ["exploration=token"]:
        assert last["exploration/gated_fraction"] > 0.05
