"""Reports as tables for the terminal."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from ngrpo.evaluation.benchmark_report import Estimate, Report, average
from ngrpo.evaluation.paired_comparison import Comparison
from ngrpo.evaluation.table_rows import table_rows
from ngrpo.utils.numbers import significant


def report_table(reports: Mapping[str, Report]) -> Table:
    """Returns a row a metric and a column a benchmark, and their average where there are several."""
    table = Table(caption="[95 % bootstrap interval over problems]")
    table.add_column("metric")
    for name, one in reports.items():
        table.add_column(f"{name} ({one.problems} problems)", justify="right")
    averages = average(list(reports.values())) if len(reports) > 1 else {}
    if averages:
        table.add_column("average", justify="right")
    for metric in table_rows(metric for one in reports.values() for metric in one.metrics):
        cells = [shown(one.metrics[metric]) if metric in one.metrics else "" for one in reports.values()]
        mean = [significant(averages[metric]) if metric in averages else ""] if averages else []
        table.add_row(metric, *cells, *mean)
    return table


def shown(estimate: Estimate) -> str:
    """Returns ``value [low, high]``."""
    return f"{significant(estimate.value)} \\[{significant(estimate.low)}, {significant(estimate.high)}]"


def comparison_table(name: str, runs: Sequence[str], comparison: Comparison) -> Table:
    """Returns a row a metric: every run's value, and the paired differences to the first run."""
    table = Table(
        title=f"{name}, {comparison.problems} problems",
        caption=f"differences to {runs[0]} [95 % paired bootstrap interval]; * excludes 0",
    )
    for heading in ("metric", *runs, *(f"difference {run}" for run in runs[1:])):
        table.add_column(heading, justify="left" if heading == "metric" else "right", overflow="fold")
    for metric in table_rows(comparison.metrics):
        row = comparison.metrics[metric]
        values = [significant(value) for value in row.values]
        table.add_row(metric, *values, *(_difference(one) for one in row.differences))
    return table


def _difference(one: Estimate) -> str:
    excludes_zero = one.low > 0 or one.high < 0
    value, low, high = (significant(number, signed=True) for number in (one.value, one.low, one.high))
    return f"{value} \\[{low}, {high}]{'*' if excludes_zero else ' '}"
