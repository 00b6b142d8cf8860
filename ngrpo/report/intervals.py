"""Pass@k of a recorded evaluation, problem by problem and with its interval."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ngrpo.evaluation.benchmark_report import Estimate, estimates
from ngrpo.evaluation.estimators import pass_at_k
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.curves import pass_curve


def sample_count(evaluation: EvaluationResult, prefix: str) -> int | None:
    """Returns n, the samples a problem; None where the metrics do not tell.

    The largest k for which Pass@k is reported is n itself (`ngrpo.evaluation.ks.powers_of_two`).
    """
    return max(pass_curve(evaluation.metrics, prefix), default=None)


def passes_per_problem(evaluation: EvaluationResult, prefix: str, ks: Sequence[int]) -> dict[int, Tensor]:
    """Returns Pass@k of each of P problems by k, for those of ``ks`` for which there are enough samples; float64 [P].

    With k = 1 it is the fraction of right samples, Mean@1.
    """
    rates = torch.tensor(evaluation.rates.get(prefix, []), dtype=torch.float64)
    n = sample_count(evaluation, prefix)
    if n is None or not len(rates):
        return {}
    solved = (rates * n).round().long()
    return {k: pass_at_k(n, solved, k) for k in ks if k <= n}


def pass_estimates(evaluations: Sequence[EvaluationResult], prefix: str) -> list[dict[int, Estimate]]:
    """Returns Pass@k by k of each evaluation with 95 % bootstrap intervals over problems.

    An evaluation without rates by problem has none.
    """
    made: list[dict[int, Estimate]] = []
    for one in evaluations:
        values = passes_per_problem(one, prefix, list(pass_curve(one.metrics, prefix)))
        found = estimates({str(k): column for k, column in values.items()}) if values else {}
        made.append({int(k): estimate for k, estimate in found.items()})
    return made
