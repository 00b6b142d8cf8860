"""The charts of one run, section by section."""

from collections.abc import Sequence
from dataclasses import dataclass

from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report import metric_charts
from ngrpo.report.chart import Chart
from ngrpo.report.evaluation_charts import learning, pass_at_k, pass_over_training, problems
from ngrpo.report.metric_charts import MetricChart
from ngrpo.report.run_records import IterationRecord


@dataclass(frozen=True)
class Section:
    """Charts under a heading.

    Attributes:
        name: id of its element.
        title: the heading.
        charts: those of which there is something to show.
    """

    name: str
    title: str
    charts: list[Chart]


def sections(iterations: Sequence[IterationRecord], evaluations: Sequence[EvaluationResult]) -> list[Section]:
    """Returns the sections in which there is something to show."""

    def drawn(*wanted: MetricChart) -> list[Chart]:
        return [chart for one in wanted if (chart := one.of(iterations)) is not None]

    learned = [make(iterations, evaluations) for make in (learning, pass_at_k, pass_over_training, problems)]
    more = (metric_charts.other_schedules(iterations), metric_charts.learned(iterations))
    made = [
        Section("learning-section", "Learning", [chart for chart in learned if chart is not None]),
        Section("exploration-section", "Exploration", drawn(*metric_charts.EXPLORATION, *more)),
        Section("update-section", "Health of the update", drawn(*metric_charts.UPDATE)),
        Section(
            "responses-section", "Responses and time",
            drawn(metric_charts.reward_terms(iterations), *metric_charts.RESPONSES),
        ),
    ]  # fmt: skip
    return [section for section in made if section.charts]
