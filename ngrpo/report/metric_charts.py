"""The charts of what is logged each iteration: which metrics, their titles, units and how they are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ngrpo.report.chart import LineChart, Point, Series
from ngrpo.report.run_records import IterationRecord
from ngrpo.types.scores import Verdict

ITERATIONS = "iterations"
_EXPLORATION = "exploration/"
_LEARNED = "exploration/learned/"


@dataclass(frozen=True)
class MetricChart:
    """One chart of logged metrics.

    Attributes:
        name: id of its element.
        title: shown above it.
        note: one sentence on how it is read.
        y_title: of the axis, with its unit.
        tags: label by tag; those that were not logged are left out.
        dashed: tags that are drawn so.
        idle: the value of all metrics where what the chart shows is not in use; it is left out then. None shows it.
        log_y: powers of ten are equally far apart; values that are not positive are left out.
        share: values are shares of 1.
        stacked: each line is drawn on top of those before it.
    """

    name: str
    title: str
    note: str
    y_title: str
    tags: Mapping[str, str]
    dashed: frozenset[str] = field(default_factory=frozenset)
    idle: float | None = None
    log_y: bool = False
    share: bool = False
    stacked: bool = False

    def of(self, iterations: Sequence[IterationRecord]) -> LineChart | None:
        """Returns the chart of a run; None if there is nothing to show."""
        found = [
            Series(label, points, dashed=tag in self.dashed)
            for tag, label in self.tags.items()
            if (points := self._shown(points_of(iterations, tag)))
        ]
        if self.stacked:
            found = [line for line in found if any(y for _, y in line.points)]
        if not found or all(y == self.idle for line in found for _, y in line.points):
            return None
        return LineChart(
            self.name, self.title, self.note, ITERATIONS, self.y_title, found,
            log_y=self.log_y, share=self.share, stacked=self.stacked,
        )  # fmt: skip

    def _shown(self, points: list[Point]) -> list[Point]:
        return [(x, y) for x, y in points if y > 0] if self.log_y else points


def points_of(iterations: Sequence[IterationRecord], tag: str) -> list[Point]:
    """Returns (iterations done, value) of a metric where it was logged."""
    return [(r.iteration + 1, r.metrics[tag]) for r in iterations if tag in r.metrics]


EXPLORATION = (
    MetricChart(
        "mixed-share", "Mixed tokens", "Share of response tokens in whose place a mixture was fed.", "share of tokens",
        {"exploration/gated_fraction": "mixed", "exploration/rate": "rate that the strategy's schedule asks for"},
        dashed=frozenset({"exploration/rate"}),
    ),
    MetricChart(
        "cosine", "How far mixtures lead", "Between the vector that was fed and the embedding of the mixture's anchor "
        "token; 1 is no change.", "cosine similarity",
        {"exploration/cosine_mean": "mean", "exploration/cosine_min": "least"},
    ),
    MetricChart(
        "anchor-weight", "Weight on the anchor", "Mean weight of a mixture's first token; the others share the rest.",
        "weight, 0 to 1", {"exploration/anchor_weight": "anchor"},
    ),
    MetricChart(
        "mixture-size", "Tokens in a mixture", "Mean number of tokens that have weight in a mixture.",
        "tokens per mixture", {"exploration/mixture_size": "tokens"},
    ),
    MetricChart(
        "reward-by-mixing", "Reward with and without mixing", "Mean over responses with at least one mixed token, and "
        "over those with none. Longer responses are mixed more often: not an effect of mixing by itself.", "reward",
        {"exploration/reward_mixed": "with mixing", "exploration/reward_plain": "without"},
    ),
    MetricChart(
        "entropy", "Entropy", "Of the policy at response tokens: near 0, rollouts of a prompt are alike.",
        "nats per token", {"policy/entropy": "entropy"},
    ),
    MetricChart(
        "answers", "Distinct answers", "Different final answers among the rollouts of a prompt.", "answers per prompt",
        {"train/distinct_answers": "distinct answers"},
    ),
    MetricChart(
        "solution-paths", "Distinct solution paths", "Different ways to an answer among the rollouts of a prompt.",
        "paths per prompt", {"train/distinct_paths": "distinct paths"},
    ),
)  # fmt: skip

UPDATE = (
    MetricChart(
        "kl", "KL", "Estimate of the policy's divergence from the reference model.", "nats per token",
        {"policy/kl": "KL to the reference"}, idle=0,
    ),
    MetricChart(
        "clip", "Clip fraction", "Tokens of which the clip removed the gradient.", "share of tokens",
        {"policy/clip_fraction": "clipped"},
    ),
    MetricChart(
        "ratio", "Importance ratio", "Mean probability under the policy in training over that at the start of the "
        "iteration.", "ratio", {"policy/ratio": "mean ratio"},
    ),
    MetricChart(
        "mismatch", "Mismatch of rollout and trainer", "Between the log-probs of the engine that wrote a token and the "
        "trainer's, with the same weights.", "nats, logarithmic",
        {"rollout/mismatch_mean": "mean", "rollout/mismatch_max": "largest"}, log_y=True,
    ),
    MetricChart(
        "correction", "Rollout correction", "Tokens whose weight for the mismatch of rollout and trainer was "
        "truncated or masked.", "share of tokens",
        {"rollout/correction_bounded": "bounded"}, idle=0,
    ),
    MetricChart(
        "grad-norm", "Gradient norm", "Before clipping (trainer.max_grad_norm).", "norm",
        {"policy/grad_norm": "policy", "critic/grad_norm": "critic"},
    ),
    MetricChart(
        "zero-signal", "Groups without signal", "Prompts whose rollouts all have the same reward: they teach nothing.",
        "share of prompts", {"train/zero_signal": "without signal"}, share=True,
    ),
    MetricChart(
        "learning-rate", "Learning rate", "Of the policy's optimiser.", "learning rate",
        {"policy/learning_rate": "policy"},
    ),
    MetricChart(
        "skipped", "Skipped optimiser steps", "Steps with a loss or gradient that is not finite, since the start.",
        "steps", {"policy/skipped_steps": "skipped"}, idle=0,
    ),
    MetricChart(
        "overflowed", "Steps left out for the loss scale", "Steps whose gradient overflowed float16; the scale was "
        "halved then.", "steps", {"policy/overflowed_steps": "policy", "critic/overflowed_steps": "critic"}, idle=0,
    ),
    MetricChart(
        "loss-scale", "Loss scale", "What the loss is multiplied by before the backward pass in float16.",
        "scale, logarithmic", {"policy/loss_scale": "policy", "critic/loss_scale": "critic"}, log_y=True,
    ),
    MetricChart(
        "critic", "Explained variance of the critic", "1 is a perfect critic, 0 one that knows nothing.", "share",
        {"critic/explained_variance": "explained variance"},
    ),
)  # fmt: skip

RESPONSES = (
    MetricChart(
        "length", "Length", "Of the responses.", "tokens per response",
        {"rollout/length_mean": "mean", "rollout/length_max": "longest"},
    ),
    MetricChart(
        "branch-depth", "Forks", "How often a response forked off others, on average.", "forks per response",
        {"rollout/branch_depth": "forks"}, idle=0,
    ),
    MetricChart(
        "cost", "Cost of a response", "Tokens generated for each response that was trained on; common ones count once.",
        "tokens per response", {"rollout/tokens_per_response": "generated", "rollout/given_mean": "given"},
    ),
    MetricChart(
        "truncated", "Truncated responses", "Cut off at rollout.max_new_tokens.", "share of responses",
        {"rollout/truncated": "truncated"}, idle=0,
    ),
    MetricChart(
        "verdicts", "Verdicts", "What the verifier said of the responses, stacked.", "share of responses",
        {f"reward/{verdict}": verdict.replace("_", " ") for verdict in Verdict}, stacked=True, share=True,
    ),
    MetricChart(
        "timing", "Time", "Phases of an iteration, stacked.", "seconds per iteration",
        {
            "time/generate_s": "generation", "time/reward_s": "scoring of answers", "time/score_s": "log-probs",
            "time/update_s": "update",
        }, stacked=True,
    ),
    MetricChart(
        "speed", "Speed of generation", "Of all devices together.", "tokens per second",
        {"rollout/tokens_per_s": "generated"},
    ),
    MetricChart(
        "memory", "Peak memory", "The most that any process has held so far.", "GiB", {"memory/peak_gib": "peak"},
    ),
)  # fmt: skip


def other_schedules(iterations: Sequence[IterationRecord]) -> MetricChart:
    """Returns the chart of what else a strategy's schedule gives, such as a number of tokens."""
    known = {tag for chart in EXPLORATION for tag in chart.tags}
    tags = [t for t in _tags(iterations) if t.startswith(_EXPLORATION) and not t.startswith(_LEARNED)]
    return MetricChart(
        "schedule", "Schedule of the strategy", "Values by which the rollouts were made.", "value",
        {tag: tag.removeprefix(_EXPLORATION) for tag in tags if tag not in known},
    )  # fmt: skip


def learned(iterations: Sequence[IterationRecord]) -> MetricChart:
    """Returns the chart of a strategy's learned parameters."""
    tags = [tag for tag in _tags(iterations) if tag.startswith(_LEARNED)]
    return MetricChart(
        "learned", "Learned by the strategy", "A number as it is, the root mean square of a larger tensor.", "value",
        {tag: tag.removeprefix(_LEARNED) for tag in tags},
    )  # fmt: skip


def reward_terms(iterations: Sequence[IterationRecord]) -> MetricChart:
    """Returns the chart of the reward's summands; empty where the answer's correctness is all there is."""
    sides = {f"reward/{verdict}" for verdict in (*Verdict, "left_out")}
    tags = [tag for tag in _tags(iterations) if tag.startswith("reward/") and tag not in sides]
    return MetricChart(
        "reward-terms", "Parts of the reward", "Weighted summands of the reward, means over responses.", "reward",
        {tag: tag.removeprefix("reward/").replace("_", " ") for tag in tags} if len(tags) > 1 else {},
    )  # fmt: skip


def _tags(iterations: Sequence[IterationRecord]) -> list[str]:
    return list(dict.fromkeys(tag for record in iterations for tag in record.metrics))
