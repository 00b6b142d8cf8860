"""Results of a setting of the leaderboard, made by hand."""

from dataclasses import asdict, replace

from made_results import STUDY, results

from ngrpo.study.definition import LevelsConfig
from ngrpo.study.results import RateChoice, RateTrial, Results

_ARM = {"overrides": ["algo=grpo"], "seeds": 2, "against": None, "strengths": []}
PRIMARY = {
    "comparisons": [{"arm": "neighbor_grpo", "against": "token_grpo", "metric": "pass@4"}],
    "family": 2,
    "assumed_sd": 0.1,
    "power": 0.8,
}


def setting(name: str = "made") -> Results:
    """Returns two arms with two seeds each, of which one is compared with the other."""
    study = {
        **STUDY,
        "name": name,
        "test": {"path": "demo@held_out", "problems": 3, "samples": 4},
        "arms": {"token_grpo": _ARM, "neighbor_grpo": _ARM | {"against": "token_grpo"}},
        "primary": PRIMARY,
        "levels": asdict(LevelsConfig(chosen="demo:1-1", gain=0.25, unsolved=0.2)),
        "generated_tokens": 1000,
    }
    base = results()
    assert base.base is not None
    tuned = {arm: RateChoice(1e-3, [RateTrial(1e-3, {"pass_area": 0.5})]) for arm in study["arms"]}
    tuned["neighbor_grpo"] = replace(tuned["neighbor_grpo"], strength="exploration.rate=0.1")
    runs = [
        replace(run, tokens=1000 + run.seed, test=replace(run.test, solutions=[1, 2, 3]), versions={"torch": "2"})
        for run in base.runs
    ]
    return replace(
        base, study=study, tuned=tuned, runs=runs, base=replace(base.base, right=[0, 0, 2]), speeds={}, effects={}
    )
