"""A run's folder written by hand, with text in it that tries to get out."""

import json
from pathlib import Path
from typing import Any

from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.run_description import RunDescription, RunWarning
from ngrpo.report.run_records import IterationRecord, MixedToken, ProblemRate, StoredRollout
from ngrpo.report.run_store import RunStore

HOSTILE = [
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "<!--<script>",
    "{{ 7 * 191 }}",
    "\x1b]0;pwned\x07\x1b[31m",
    "\u202edetrevni",
    "\"\u2028' onmouseover=window.pwned=3 \\",
]
METHODS = {"algo": "gspo</title><script>window.pwned = 4</script>", "exploration": "neighbor"}


def stored(group: int, reward: float | None, tokens: list[str], mixed: dict[int, dict[str, float]]) -> StoredRollout:
    right = {1.0: "correct", 0.0: "wrong"}
    return StoredRollout(
        group=group,
        question=f"question {group} {HOSTILE[0]}",
        reference=HOSTILE[1],
        answer=HOSTILE[2],
        verdict="unparsable_reference" if reward is None else right[reward],
        reward=reward,
        advantage=reward,
        stop="stop",
        length=len(tokens),
        tokens=tokens,
        log_probs=[-0.5 * place for place in range(len(tokens))],
        entropies=[3.0 - 0.75 * place for place in range(len(tokens))],
        mixed=[MixedToken(place, list(m), list(m.values()), None) for place, m in mixed.items()],
    )


def description(**more: Any) -> RunDescription:
    told = {
        "model": "demo", "data": "word problems", "held_out": "held-out word problems", "data_identity": "one",
        "methods": METHODS, "strategy": "mine.Own(rate=0.1)", "engine": "TorchEngine", "seed": 3,
        "started": "2026-03-04T05:06:07+00:00",
        "iterations": 12, "changed": {"algo": "gspo", "trainer.iterations": HOSTILE[1]}, "commit": "0123456789abcdef",
        "versions": {"torch": "2.13"}, "hardware": "1 x a device",
    }  # fmt: skip
    return RunDescription(**(told | more))


def write_run(run: Path, iterations: int = 12, rise: float = 0.5, planned: int = 12, **told: Any) -> Path:
    """``iterations`` iterations of 2 problems that come again, three evaluations of 3, rollouts of two iterations."""
    store = RunStore(run)
    store.describe(description(iterations=planned, **told))
    store.add_warning(RunWarning("2026-03-04T05:07:00+00:00", f"the policy's entropy has fallen {HOSTILE[1]}"))
    for number in range(iterations):
        metrics = {
            "train/reward": number / iterations,
            "train/mean@1": number / iterations,
            "train/pass@1": number / iterations,
            "train/pass@4": 0.5 + number / iterations / 2,
            "rollout/length_mean": 20.0 + number,
            "rollout/length_max": 50.0 + number,
            "policy/entropy": 1.0 / (1 + number),
            "policy/kl": 0.0,
            "policy/clip_fraction": 0.1,
            "policy/ratio": 1.0,
            "policy/grad_norm": 0.5,
            "rollout/mismatch_mean": 1e-7,
            "rollout/mismatch_max": 1e-5,
            "exploration/gated_fraction": 0.1,
            "exploration/cosine_mean": 0.99,
            "exploration/cosine_min": 0.9,
            "exploration/anchor_weight": 0.8,
            "exploration/reward_mixed": 0.5,
            "exploration/reward_plain": 0.4,
            "exploration/temperature": 1.5,
            "exploration/learned/gain": 0.25,
            "time/generate_s": 2.0,
            "time/reward_s": 0.1,
            "time/score_s": 0.5,
            "time/update_s": 1.0 + number % 3,
        }
        store.add_iteration(IterationRecord(number, metrics, [ProblemRate(k, number % 5, 4) for k in (7, 9)]))
    for done in (0, iterations // 2, iterations):
        risen = rise * done / iterations
        found = {"mean@1": 0.3 + risen, "pass@1": 0.3 + risen, "pass@2": 0.4 + risen, "pass@4": 0.5 + risen}
        store.add_evaluation(EvaluationResult(done, found, {"": [0.0, 0.5 + risen, 1.0]}))
    for number in (0, iterations - 1):
        store.add_rollouts(number, rollouts(), keep=4)
    before, after = {"mean@1": 0.3, "pass@1": 0.3, "pass@4": 0.5}, {"mean@1": 0.8, "pass@1": 0.8, "pass@4": 1.0}
    summary = {
        "methods": METHODS,
        "wall_s": 90.0,
        "tokens_generated": 12345,
        "eval": {"before": before, "after": after},
    }
    (run / "summary.json").write_text(json.dumps(summary))
    return run


def rollouts() -> list[StoredRollout]:
    mixture = {2: {" seven": 0.7, HOSTILE[0]: 0.2, HOSTILE[4]: 0.1}}
    return [
        stored(0, 1.0, ["So", " she", " seven", "\n", " apples"], mixture),
        stored(0, 0.0, HOSTILE, {}),
        stored(1, 0.0, ["No", " box"], {1: {" box": 1.0}}),
        stored(1, None, ["Lost"], {}),
    ]
