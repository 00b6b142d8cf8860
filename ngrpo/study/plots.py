"""The results of a study as one figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ngrpo.evaluation.ks import powers_of_two
from ngrpo.study.arm_summary import figures
from ngrpo.study.results import Results, RunResult
from ngrpo.study.statistics import Mean, mean_of

_SMOOTH = 5
"""Iterations in a running mean of the curves over time."""

_OVER_TIME = (
    ("policy/entropy", "entropy of the policy (nats)"),
    ("train/distinct_answers", "distinct answers in a group"),
    ("train/distinct_paths", "distinct paths in a group"),
    ("train/reward", "reward"),
)


_TOKENS = "rollout/generated_tokens"
_LINES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Look:
    """How an arm is drawn: Matplotlib's names of a colour and of a kind of line."""

    colour: str
    line: str


def looks_of(arms: Sequence[str]) -> dict[str, Look]:
    """Returns a colour for each strategy and a line for each algorithm; an arm is named STRATEGY_ALGORITHM.

    Where there are more algorithms than kinds of lines each arm has a colour of its own.
    """
    parts = [arm.rpartition("_") for arm in arms]
    strategies, algorithms = (dict.fromkeys(part[at] for part in parts) for at in (0, 2))
    if len(algorithms) > len(_LINES):
        return {arm: Look(f"C{i % 10}", _LINES[i // 10 % len(_LINES)]) for i, arm in enumerate(arms)}
    colours = {strategy: f"C{i % 10}" for i, strategy in enumerate(strategies)}
    lines = dict(zip(algorithms, _LINES, strict=False))
    return {arm: Look(colours[part[0]], lines[part[2]]) for arm, part in zip(arms, parts, strict=True)}


def write_figure(results: Results, path: Path) -> None:
    """Draws Pass@k against k, its difference to the reference, and four curves over iterations or generated tokens.

    Bands are 95 % t-intervals over seeds. Curves over time are means over seeds of running means, without bands (see
    `looks_of` for colours and lines).
    """
    arms = [arm for arm in results.study["arms"] if results.of_arm(arm)]
    looks = looks_of(arms)
    figure = Figure(figsize=(15, 9), layout="constrained")
    axes = figure.subplots(2, 3)
    _pass_at_k(axes[0, 0], results, arms, looks)
    _difference(axes[0, 1], results, arms, looks)
    tokens = by_tokens(results.runs)
    for ax, (metric, label) in zip([axes[0, 2], *axes[1]], _OVER_TIME, strict=True):
        for arm in arms:
            _over_time(ax, results.of_arm(arm), metric, looks[arm])
        ax.set(xlabel="generated tokens" if tokens else "iteration", ylabel=label)
        if tokens:
            ax.xaxis.set_major_formatter(EngFormatter(sep=""))  # "200k": whole numbers would overlap
        ax.grid(alpha=0.3)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _pass_at_k(ax: Axes, results: Results, arms: Sequence[str], looks: dict[str, Look]) -> None:
    if results.base is not None:
        base = figures(results.base)
        ks = powers_of_two(results.base.samples)
        ax.plot(ks, [base[f"pass@{k}"] for k in ks], "k--", label="untrained")
    for arm in arms:
        runs = results.of_arm(arm)
        each = [figures(run.test) for run in runs]
        ks = powers_of_two(runs[0].test.samples)
        means = [mean_of([one[f"pass@{k}"] for one in each]) for k in ks]
        _band(ax, ks, means, looks[arm], f"{arm} ({len(runs)})")
    _log_k(ax, results, "Pass@k on test problems")


def _difference(ax: Axes, results: Results, arms: Sequence[str], looks: dict[str, Look]) -> None:
    reference = str(results.study["reference"])
    theirs = {run.seed: figures(run.test) for run in results.of_arm(reference)}
    for arm in arms:
        own = {run.seed: figures(run.test) for run in results.of_arm(arm) if run.seed in theirs}
        if arm == reference or not own:
            continue
        ks = powers_of_two(results.of_arm(arm)[0].test.samples)
        means = [mean_of([own[s][f"pass@{k}"] - theirs[s][f"pass@{k}"] for s in own]) for k in ks]
        _band(ax, ks, means, looks[arm], None)
    ax.axhline(0, color="black", linewidth=0.8)
    _log_k(ax, results, f"Pass@k minus {reference}'s, same seed")


def _log_k(ax: Axes, results: Results, label: str) -> None:
    ks = powers_of_two(int(results.study["test"]["samples"]))
    ax.set_xscale("log", base=2)
    ax.set_xticks(ks, [str(k) for k in ks])
    ax.set(xlabel="k", ylabel=label)
    ax.grid(alpha=0.3)


def _over_time(ax: Axes, runs: Sequence[RunResult], metric: str, look: Look) -> None:
    curves = [run.curves[metric] for run in runs if metric in run.curves]
    if not curves:
        return
    length = min(map(len, curves))
    smooth = [_running_mean(curve[:length]) for curve in curves]
    means = [sum(values) / len(values) for values in zip(*smooth, strict=True)]
    ax.plot(progress(runs, length), means, look.line, color=look.colour, linewidth=1.4)


def progress(runs: Sequence[RunResult], length: int) -> list[float]:
    """Returns where each iteration is on the axis: its number or, in runs of equal tokens, the mean of these so far."""
    if not by_tokens(runs):
        return [float(number) for number in range(1, length + 1)]
    counts = [run.curves[_TOKENS][:length] for run in runs]
    return [sum(values) / len(values) for values in zip(*counts, strict=True)]


def by_tokens(runs: Sequence[RunResult]) -> bool:
    """Says whether runs end by their generated tokens, and are drawn over them."""
    return all(_TOKENS in run.curves and any("max_generated_tokens" in word for word in run.settings) for run in runs)


def _running_mean(values: Sequence[float]) -> list[float]:
    """Mean of up to `_SMOOTH` values that end with each."""
    spans = (values[max(0, i + 1 - _SMOOTH) : i + 1] for i in range(len(values)))
    return [sum(span) / len(span) for span in spans]


def _band(ax: Axes, x: Sequence[int], means: Sequence[Mean], look: Look, label: str | None) -> None:
    ax.plot(x, [mean.value for mean in means], look.line, color=look.colour, label=label, linewidth=1.4)
    ax.fill_between(x, [mean.low for mean in means], [mean.high for mean in means], color=look.colour, alpha=0.1)
