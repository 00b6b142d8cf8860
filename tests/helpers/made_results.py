"""Results made by hand."""

from ngrpo.study.results import AnswerStatistics, Effect, RateChoice, RateTrial, Results, RunResult, Speed

STUDY = {
    "name": "made",
    "reference": "token_grpo",
    "iterations": 3,
    "arms": {"token_grpo": {}, "neighbor_grpo": {}, "soft_grpo": {}},
    "test": {"problems": 3, "samples": 4},
    "tune": {"metric": "pass_area"},
    "diversity": {"group": 2, "alike": 2},
}


def answer_statistics(right: list[int], right_paths: list[float | None]) -> AnswerStatistics:
    count = len(right)
    return AnswerStatistics(
        samples=4,
        right=right,
        majority={"2": 0.5, "4": 0.25},
        answers=[1.5] * count,
        paths=[1.25] * count,
        wrong_answers=[None] * count,
        right_paths=right_paths,
        length=20.0,
        truncated=0.125,
    )


def run(arm: str, seed: int, right: list[int], right_paths: list[float | None]) -> RunResult:
    curves = {"policy/entropy": [1.0, 0.5, 0.25], "rollout/tokens_per_s": [10.0, 30.0, 20.0], "train/reward": [0, 1, 1]}
    seconds = {"train": 1.0}
    test = answer_statistics(right, right_paths)
    return RunResult(arm, seed, 1e-3, ["a=1"], 3, test, curves, seconds, "cpu", "abc", "2026-11-28")


def results() -> Results:
    shares = {"token": 0.5, "next_token": 0.25, "text": 0.75, "answer": 0.125}
    return Results(
        study=STUDY,
        base=answer_statistics([0, 1, 2], [None, None, 1.0]),
        tuned={
            "token_grpo": RateChoice(1e-3, [RateTrial(1e-3, {"pass_area": 0.5}), RateTrial(1e-2, {"pass_area": 0.25})])
        },
        runs=[
            run("neighbor_grpo", 1, [4, 4, 0], [2.0, 1.0, None]),
            run("token_grpo", 0, [2, 2, 2], [1.0, 1.0, 1.0]),
            run("token_grpo", 1, [4, 0, 2], [1.0, None, 1.5]),
            run("neighbor_grpo", 0, [2, 3, 4], [1.5, 2.0, 2.0]),
        ],
        speeds={"token_grpo": Speed([100.0, 300.0, 200.0], 50, "cpu"), "neighbor_grpo": Speed([90.0], 50, "cpu")},
        effects={"token_grpo": None, "neighbor_grpo": Effect(9, 0.1, 0.99, shares, shares, 0.0)},
        levels={"demo:1-1": {"mean@1": 0.25, "pass@8": 0.5}},
    )
