"""Pass@k read back from logged metrics."""

from collections.abc import Mapping


def pass_curve(metrics: Mapping[str, float], prefix: str = "") -> dict[int, float]:
    """Returns Pass@k by k, ascending, from metrics named ``<prefix>pass@<k>``."""
    start = f"{prefix}pass@"
    found = {int(name.removeprefix(start)): value for name, value in metrics.items() if name.startswith(start)}
    return dict(sorted(found.items()))
