"""The charts of the report, as plotly figures without colours: the page gives them those of its theme."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from ngrpo.report.curves import benchmarks, pass_curve
from ngrpo.report.run_records import EvaluationRecord, IterationRecord
from ngrpo.utils.numbers import significant

_SHOWN_PROBLEMS = 200
"""Most rows of a heat map."""

_EDGE = 5
"""Iterations that the training groups' Pass@k is averaged over, at either end of the run."""


@dataclass(frozen=True)
class Chart:
    """One chart of the page.

    Attributes:
        name: id of its element.
        title: shown above it.
        note: one sentence on how it is read.
        figure: the plotly figure.
        numbers: heading and rows of the table that says the same.
    """

    name: str
    title: str
    note: str
    figure: go.Figure
    numbers: tuple[list[str], list[list[str]]]


def charts(iterations: Sequence[IterationRecord], evaluations: Sequence[EvaluationRecord]) -> list[Chart]:
    """Returns the charts of which there is something to show."""
    made = [
        learning(iterations, evaluations),
        pass_at_k(iterations, evaluations),
        problems(iterations, evaluations),
        _lines("length", "Length", "Response tokens.", iterations, _LENGTH),
        _lines("entropy", "Entropy", "Of the policy, in nats a token.", iterations, {"policy/entropy": "entropy"}),
        timing(iterations),
    ]
    return [chart for chart in made if chart is not None]


_LENGTH = {"rollout/length_mean": "mean", "rollout/length_max": "longest"}
_LEARNING = {"train/reward": "reward, training", "train/mean@1": "Mean@1, training"}
_SECONDS = {
    "time/generate_s": "generation",
    "time/reward_s": "scoring of answers",
    "time/score_s": "log-probs",
    "time/update_s": "update",
}

_COUNTED: dict[str, Callable[[Sequence[float]], bool]] = {
    "in all": lambda rates: True,
    "never solved": lambda rates: max(rates) == 0,
    "always solved": lambda rates: min(rates) == 1,
    "solved more often at the end": lambda rates: rates[-1] > rates[0],
    "solved less often at the end": lambda rates: rates[-1] < rates[0],
}


def learning(iterations: Sequence[IterationRecord], evaluations: Sequence[EvaluationRecord]) -> Chart | None:
    """Reward and Mean@1 of the training rollouts, and Mean@1 on held-out problems."""
    series = _series(iterations, _LEARNING)
    for prefix, label in benchmarks(evaluations).items():
        series[f"Mean@1, {label}"] = [(e.iteration, e.metrics[f"{prefix}mean@1"]) for e in evaluations]
    note = "Training rollouts explore; held-out problems are sampled plainly."
    chart = _line_chart("learning", "Learning curves", note, series)
    if chart is not None:
        # With a reward of 0 or 1 the two coincide.
        chart.figure.update_traces(line_dash="dot", selector={"name": _LEARNING["train/mean@1"]})
    return chart


def pass_at_k(iterations: Sequence[IterationRecord], evaluations: Sequence[EvaluationRecord]) -> Chart | None:
    """Pass@k before and after: held-out problems where there are two evaluations, else the training groups."""
    if len(evaluations) > 1:
        sides = {
            f"{label}, iteration {e.iteration}": pass_curve(e.metrics, prefix)
            for prefix, label in benchmarks(evaluations).items()
            for e in (evaluations[0], evaluations[-1])
        }
        note = "Held-out problems: the chance that at least one of k samples is right."
    elif len(iterations) > 1:
        edge = min(_EDGE, len(iterations) // 2)
        sides = {"first iterations": _mean_curve(iterations[:edge]), "last iterations": _mean_curve(iterations[-edge:])}
        note = f"Training groups, means over {edge} iterations at either end; there are no two evaluations."
    else:
        return None
    if not sides or not all(sides.values()):
        return None
    chart = _line_chart("pass-at-k", "Pass@k before and after", note, {n: list(c.items()) for n, c in sides.items()})
    if chart is not None:
        ks = list(next(iter(sides.values())))
        chart.figure.update_xaxes(type="log", title="k", tickvals=ks, ticktext=[str(k) for k in ks])
        chart.figure.update_yaxes(title="Pass@k")
    return chart


def problems(iterations: Sequence[IterationRecord], evaluations: Sequence[EvaluationRecord]) -> Chart | None:
    """How often each problem was solved over time: held-out ones, else training problems seen again and again."""
    if len(evaluations) > 1:
        named = {
            f"{prefix}problem {number}": list(rates)
            for prefix in benchmarks(evaluations)
            for number, rates in enumerate(zip(*(e.rates[prefix] for e in evaluations), strict=True))
        }
        columns = [str(e.iteration) for e in evaluations]
        axis, note = "iterations done", "Held-out problems, each a row; those that end unsolved on top."
    else:
        named = {f"problem {key}": rates for key, rates in _rates_by_visit(iterations).items() if len(rates) > 1}
        columns = [str(n + 1) for n in range(max(map(len, named.values()), default=0))]
        axis, note = "visit", "Training problems met more than once, each a row; those that end unsolved on top."
    if not named:
        return None
    names = sorted(named, key=lambda name: (-named[name][-1], -sum(named[name])))
    if len(names) > _SHOWN_PROBLEMS:
        note += f" {_SHOWN_PROBLEMS} of {len(names)}, evenly spread."
        names = [names[i * len(names) // _SHOWN_PROBLEMS] for i in range(_SHOWN_PROBLEMS)]
    figure = go.Figure(
        go.Heatmap(
            z=[[*named[name], *[None] * (len(columns) - len(named[name]))] for name in names],
            x=columns,
            text=[[name] * len(columns) for name in names],
            hovertemplate="%{text}<br>" + axis + " %{x}: %{z:.0%}<extra></extra>",
            hoverongaps=False,
            zmin=0,
            zmax=1,
            colorbar={"title": "solved", "tickformat": ".0%", "thickness": 12},
        )
    )
    figure.update_xaxes(title=axis, type="category")
    figure.update_yaxes(showticklabels=False, ticks="", title=f"{len(names)} problems")
    counts = [[label, str(sum(map(met, named.values())))] for label, met in _COUNTED.items()]
    return Chart("problems", "Each problem over time", note, figure, (["", "problems"], counts))


def timing(iterations: Sequence[IterationRecord]) -> Chart | None:
    """Seconds an iteration by phase, stacked."""
    series = _series(iterations, _SECONDS)
    chart = _line_chart("timing", "Time", "Seconds an iteration, phases stacked.", series)
    if chart is not None:
        chart.figure.update_traces(stackgroup="seconds", mode="lines")
        chart.figure.update_yaxes(title="seconds")
    return chart


def _lines(
    name: str, title: str, note: str, iterations: Sequence[IterationRecord], tags: Mapping[str, str]
) -> Chart | None:
    return _line_chart(name, title, note, _series(iterations, tags))


def _series(iterations: Sequence[IterationRecord], tags: Mapping[str, str]) -> dict[str, list[tuple[int, float]]]:
    """Returns (iterations done, value) by label, without tags that were never logged."""
    found = {
        label: [(r.iteration + 1, r.metrics[tag]) for r in iterations if tag in r.metrics]
        for tag, label in tags.items()
    }
    return {label: points for label, points in found.items() if points}


def _line_chart(name: str, title: str, note: str, series: Mapping[str, Sequence[tuple[int, float]]]) -> Chart | None:
    if not series:
        return None
    figure = go.Figure()
    for label, points in series.items():
        x, y = zip(*points, strict=True)
        # Markers too: a line of one point is not drawn.
        mode = "lines+markers" if len(points) < 30 else "lines"
        figure.add_scatter(x=list(x), y=list(y), name=label, mode=mode)
    figure.update_xaxes(title="iterations")
    rows = [[label, *map(significant, _ends([y for _, y in points]))] for label, points in series.items()]
    return Chart(name, title, note, figure, (["", "first", "last", "least", "most"], rows))


def _ends(values: Sequence[float]) -> tuple[float, float, float, float]:
    return values[0], values[-1], min(values), max(values)


def _mean_curve(records: Sequence[IterationRecord]) -> dict[int, float]:
    curves = [pass_curve(record.metrics, "train/") for record in records]
    return {k: sum(curve[k] for curve in curves) / len(curves) for k in curves[0]} if all(curves) else {}


def _rates_by_visit(iterations: Sequence[IterationRecord]) -> dict[int, list[float]]:
    """Returns how often each problem was solved, visit by visit."""
    rates: dict[int, list[float]] = {}
    for record in iterations:
        for problem in record.problems:
            rates.setdefault(problem.key, []).append(problem.solved / problem.tried)
    return rates
