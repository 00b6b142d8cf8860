"""The result of one evaluation of a run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EvaluationResult:
    """One evaluation, on the data module's prompts or on benchmarks.

    Attributes:
        iteration: iterations that the policy had behind it.
        metrics: by name, e.g. ``pass@4``, or ``aime24/pass@4`` of a benchmark.
        rates: the fraction of right samples of each problem, in the data's order, by what the metrics' names start
            with: ``""`` or ``aime24/``.
        made_of: a digest of the evaluator and its prompts, see `ngrpo.evaluation.identity.evaluation_digest`; "" in
            those of versions that did not say.
    """

    iteration: int
    metrics: dict[str, float]
    rates: dict[str, list[float]]
    made_of: str = ""
