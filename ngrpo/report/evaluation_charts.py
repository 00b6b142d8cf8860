"""The charts of what the policy learned: reward, Pass@k, and each problem over time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ngrpo.evaluation.benchmark_report import Estimate
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.chart import HeatMap, LineChart, Point, Series
from ngrpo.report.curves import benchmarks, pass_curve
from ngrpo.report.intervals import pass_estimates
from ngrpo.report.metric_charts import ITERATIONS, points_of
from ngrpo.report.run_records import IterationRecord

_SHOWN_PROBLEMS = 200
"""Most rows of a heat map."""

_SHOWN_KS = 5
"""Most lines of Pass@k over training."""

_EDGE = 5
"""Iterations that the training groups' Pass@k is averaged over, at either end of the run."""

_INTERVAL = "Shaded: 95 % intervals over problems."

_COUNTED: dict[str, Callable[[Sequence[float]], bool]] = {
    "in all": lambda rates: True,
    "never solved": lambda rates: max(rates) == 0,
    "always solved": lambda rates: min(rates) == 1,
    "solved more often at the end": lambda rates: rates[-1] > rates[0],
    "solved less often at the end": lambda rates: rates[-1] < rates[0],
}


def learning(iterations: Sequence[IterationRecord], evaluations: Sequence[EvaluationResult]) -> LineChart | None:
    """Reward and Mean@1 of the training rollouts, and Mean@1 on held-out problems."""
    reward, solved = points_of(iterations, "train/reward"), points_of(iterations, "train/mean@1")
    series = [Series("reward, training", reward)] if reward else []
    if solved and solved != reward:  # with a reward of 0 or 1 they are the same
        series.append(Series("Mean@1, training", solved, dashed=True))
    for prefix, label in benchmarks(evaluations).items():
        line = solved_series(evaluations, prefix)
        if line.points:
            series.append(replace(line, label=f"Mean@1, {label}"))
    if not series:
        return None
    note = "Training rollouts explore; held-out problems are sampled plainly."
    if any(line.interval for line in series):
        note += f" {_INTERVAL}"
    return LineChart("learning", "Learning curves", note, ITERATIONS, "reward, share of right answers", series)


def pass_at_k(iterations: Sequence[IterationRecord], evaluations: Sequence[EvaluationResult]) -> LineChart | None:
    """Pass@k before and after: held-out problems where there are two evaluations, else the training groups."""
    if len(evaluations) > 1:
        series = [
            line for prefix, label in benchmarks(evaluations).items() for line in _sides(evaluations, prefix, label)
        ]
        note = f"Held-out problems: the chance that at least one of k samples is right. {_INTERVAL}"
    elif len(iterations) > 1:
        edge = min(_EDGE, len(iterations) // 2)
        sides = {"first iterations": _mean_curve(iterations[:edge]), "last iterations": _mean_curve(iterations[-edge:])}
        series = [Series(label, list(curve.items())) for label, curve in sides.items()]
        note = f"Training groups, means over {edge} iterations at either end; there are no two evaluations."
    else:
        return None
    if not series or not all(line.points for line in series):
        return None
    title = "Pass@k before and after"
    return LineChart("pass-at-k", title, note, "k, samples per problem", "Pass@k", series, log_x=True, share=True)


def _sides(evaluations: Sequence[EvaluationResult], prefix: str, label: str) -> list[Series]:
    ends = (evaluations[0], evaluations[-1])
    return [replace(pass_series(end, prefix), label=f"{label}, iteration {end.iteration}") for end in ends]


def solved_series(evaluations: Sequence[EvaluationResult], prefix: str) -> Series:
    """Returns Mean@1 over the iterations, with intervals over problems where they are known."""
    name = f"{prefix}mean@1"
    found = [(e, estimate.get(1)) for e, estimate in zip(evaluations, pass_estimates(evaluations, prefix), strict=True)]
    points = [(e.iteration, e.metrics[name], estimate) for e, estimate in found if name in e.metrics]
    return Series("Mean@1", [(x, y) for x, y, _ in points], _intervals([estimate for _, _, estimate in points]))


def pass_series(evaluation: EvaluationResult, prefix: str) -> Series:
    """Returns Pass@k over k, with intervals over problems where they are known."""
    curve = pass_curve(evaluation.metrics, prefix)
    (found,) = pass_estimates([evaluation], prefix)
    return Series("Pass@k", list(curve.items()), _intervals([found.get(k) for k in curve]))


def pass_over_training(
    iterations: Sequence[IterationRecord], evaluations: Sequence[EvaluationResult]
) -> LineChart | None:
    """Pass@k for several k over the iterations: held-out problems, else the training groups."""
    if len(evaluations) > 1:
        several = len(benchmarks(evaluations)) > 1
        series = [
            Series(
                f"k = {k}, {label}" if several else f"k = {k}",
                [(e.iteration, e.metrics[f"{prefix}pass@{k}"]) for e in evaluations],
            )
            for prefix, label in benchmarks(evaluations).items()
            for k in _some([pass_curve(e.metrics, prefix) for e in evaluations])
        ]
        note = "Held-out problems. Where large k fall while small k rise, the policy loses breadth."
    else:
        ks = _some([pass_curve(record.metrics, "train/") for record in iterations])
        series = [Series(f"k = {k}", points_of(iterations, f"train/pass@{k}")) for k in ks]
        note = "Training groups; there are no two evaluations."
    if not series:
        return None
    title = "Pass@k over training"
    return LineChart("pass-over-training", title, note, ITERATIONS, "Pass@k", series, share=True)


def _some(curves: Sequence[Mapping[int, float]]) -> list[int]:
    """Returns a few of the k that all curves have, the first and the last among them."""
    common = [k for k in curves[0] if all(k in curve for curve in curves)] if curves else []
    if len(common) <= _SHOWN_KS:
        return common
    return [common[round(place * (len(common) - 1) / (_SHOWN_KS - 1))] for place in range(_SHOWN_KS)]


def problems(iterations: Sequence[IterationRecord], evaluations: Sequence[EvaluationResult]) -> HeatMap | None:
    """How often each problem was solved over time: held-out ones, else training problems seen again and again."""
    if len(evaluations) > 1:
        named = {
            f"{prefix}problem {number}": list(rates)
            for prefix in benchmarks(evaluations)
            for number, rates in enumerate(zip(*(e.rates[prefix] for e in evaluations), strict=False))
        }
        columns = [str(e.iteration) for e in evaluations]
        axis, note = ITERATIONS, "Held-out problems, each a row; those that end unsolved on top."
    else:
        named = {f"problem {key}": rates for key, rates in _rates_by_visit(iterations).items() if len(rates) > 1}
        columns = [str(n + 1) for n in range(max(map(len, named.values()), default=0))]
        axis, note = "visit", "Training problems met more than once, each a row; those that end unsolved on top."
    if not named:
        return None
    names = sorted(named, key=lambda name: (named[name][-1], sum(named[name])))
    if len(names) > _SHOWN_PROBLEMS:
        note += f" {_SHOWN_PROBLEMS} of {len(names)}, evenly spread."
        names = [names[i * len(names) // _SHOWN_PROBLEMS] for i in range(_SHOWN_PROBLEMS)]
    counts = [[label, str(sum(map(met, named.values())))] for label, met in _COUNTED.items()]
    rows = [(name, named[name]) for name in names]
    title, y_title = "Each problem over time", f"{len(names)} problems"
    return HeatMap("problems", title, note, axis, y_title, columns, rows, (["", "problems"], counts))


def _intervals(found: Sequence[Estimate | None]) -> list[Point]:
    """Returns all bounds, or none where one is unknown."""
    known = [(one.low, one.high) for one in found if one is not None]
    return known if len(known) == len(found) else []


def _mean_curve(records: Sequence[IterationRecord]) -> dict[int, float]:
    curves = [pass_curve(record.metrics, "train/") for record in records]
    common = [k for k in curves[0] if all(k in curve for curve in curves)]
    return {k: sum(curve[k] for curve in curves) / len(curves) for k in common}


def _rates_by_visit(iterations: Sequence[IterationRecord]) -> dict[int, list[float]]:
    """Returns how often each problem was solved, visit by visit."""
    rates: dict[int, list[float]] = {}
    for record in iterations:
        for problem in record.problems:
            rates.setdefault(problem.key, []).append(problem.solved / problem.tried)
    return rates
