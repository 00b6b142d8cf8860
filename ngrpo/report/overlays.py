"""The charts of several runs: one a metric, a line a run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ngrpo.report import metric_charts
from ngrpo.report.chart import Chart, LineChart, Series
from ngrpo.report.compared_runs import Arm, ComparedRun
from ngrpo.report.curves import benchmarks
from ngrpo.report.evaluation_charts import pass_series, solved_series
from ngrpo.report.figures import Section
from ngrpo.report.metric_charts import ITERATIONS, MetricChart

_REWARD = MetricChart("reward", "Reward, training", "Of the training rollouts.", "reward", {"train/reward": "reward"})
_MOST_INTERVALS = 3
"""Runs whose intervals are drawn: more of them hide each other."""


@dataclass(frozen=True)
class _Line:
    """How a run is drawn."""

    label: str
    run: ComparedRun
    colour: int
    dashed: bool

    def of(self, line: Series) -> Series:
        """Returns a line of the run as one of several runs."""
        return replace(line, label=self.label, colour=self.colour, dashed=self.dashed)


def overlays(arms: Sequence[Arm]) -> list[Section]:
    """Returns the sections in which there is something to show.

    Runs of an arm have one colour; its second and further seeds are dashed.
    """
    runs = [
        _Line(label, run, colour, dashed=seed > 0)
        for colour, arm in enumerate(arms)
        for seed, (label, run) in enumerate(arm.runs.items())
    ]
    learning = [*_evaluated(runs), *_lines(_REWARD, runs)]
    made = [
        Section("learning-section", "Learning", learning),
        *(
            Section(name, title, [chart for one in charts for chart in _lines(one, runs)])
            for name, title, charts in (
                ("exploration-section", "Exploration", metric_charts.EXPLORATION),
                ("update-section", "Health of the update", metric_charts.UPDATE),
                ("responses-section", "Responses and time", metric_charts.RESPONSES),
            )
        ),
    ]
    return [section for section in made if section.charts]


def _lines(chart: MetricChart, runs: Sequence[_Line]) -> Iterator[Chart]:
    """Yields a chart for each metric of a chart of one run."""
    for tag, label in chart.tags.items():
        several = len(chart.tags) > 1
        one = replace(
            chart,
            name=f"{chart.name}-{tag.replace('/', '-')}" if several else chart.name,
            title=f"{chart.title}: {label}" if several else chart.title,
            tags={tag: label},
            stacked=False,
        )
        drawn = [(line, one.of(line.run.iterations)) for line in runs]
        series = [line.of(made.series[0]) for line, made in drawn if made is not None]
        if series and not (chart.stacked and all(y == 0 for line in series for _, y in line.points)):
            yield LineChart(
                one.name, one.title, one.note.replace(", stacked", ""), ITERATIONS, one.y_title, series,
                log_y=one.log_y, share=one.share,
            )  # fmt: skip


def _evaluated(runs: Sequence[_Line]) -> Iterator[Chart]:
    """Yields Mean@1 over the iterations and Pass@k at the end, of each benchmark that all evaluated runs have."""
    known = [line for line in runs if line.run.evaluations]
    labels = benchmarks([evaluation for line in known for evaluation in line.run.evaluations])
    for place, (prefix, label) in enumerate(labels.items()):
        solved = [line.of(solved_series(line.run.evaluations, prefix)) for line in known]
        passes = [line.of(pass_series(line.run.evaluations[-1], prefix)) for line in known]
        if len(known) > _MOST_INTERVALS:
            solved, passes = ([replace(line, interval=()) for line in lines] for lines in (solved, passes))
        note = "Held-out problems, sampled plainly."
        if any(line.interval for line in solved):
            note += " Shaded: 95 % intervals over problems."
        yield LineChart(f"solved-{place}", f"Mean@1, {label}", note, ITERATIONS, "share of right answers", solved)
        if all(line.points for line in passes):
            yield LineChart(
                f"pass-at-k-{place}", f"Pass@k, {label}", "At the last evaluation of each run.",
                "k, samples per problem", "Pass@k", passes, log_x=True, share=True,
            )  # fmt: skip
