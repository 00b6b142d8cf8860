"""Pass@k curves, read back from logged metrics."""

from collections.abc import Mapping, Sequence

from ngrpo.evaluation.evaluation_result import EvaluationResult


def pass_curve(metrics: Mapping[str, float], prefix: str = "") -> dict[int, float]:
    """Returns Pass@k by k, ascending, from metrics named ``<prefix>pass@<k>``."""
    start = f"{prefix}pass@"
    found = {int(name.removeprefix(start)): value for name, value in metrics.items() if name.startswith(start)}
    return dict(sorted(found.items()))


def benchmarks(evaluations: Sequence[EvaluationResult]) -> dict[str, str]:
    """Returns what all evaluations were made on: a label by what the metrics' names start with."""
    if not evaluations:
        return {}
    common = [prefix for prefix in evaluations[0].rates if all(prefix in e.rates for e in evaluations)]
    return {prefix: prefix.removesuffix("/") or "held out" for prefix in common}
