"""Pass@k curves as figures."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from lightning import Callback, LightningModule, Trainer
from matplotlib.figure import Figure

from ngrpo.callbacks.evaluation import evaluation_results
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.loggers.media import Image
from ngrpo.loggers.media_adapters import log_media
from ngrpo.report.curves import pass_curve
from ngrpo.types.problems import PromptBatch

_MOST_CURVES = 8
"""More cannot be told apart, and a long run's figures would take ever more time and memory."""


class PassAtKFigure(Callback):
    """Draws ``eval/pass_at_k`` (of a benchmark: ``eval/<name>/pass_at_k``) after each evaluation.

    The first and the newest curve have colours, those between are grey.

    Place it after the evaluation callback.
    """

    def __init__(self) -> None:
        self._drawn = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draws the evaluation before training."""
        self._draw(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Draws if there is a new evaluation."""
        self._draw(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draws the last one."""
        self._draw(trainer)

    def _draw(self, trainer: Trainer) -> None:
        results = evaluation_results(trainer)
        if len(results) in (0, self._drawn) or not trainer.is_global_zero:
            return
        self._drawn = len(results)
        media = {f"eval/{prefix}pass_at_k": _image(pass_at_k_figure(results, prefix)) for prefix in results[-1].rates}
        log_media(trainer, media, results[-1].iteration)


def _image(figure: Figure) -> Image:
    png = BytesIO()
    figure.savefig(png, format="png")
    figure.clear()  # its parts refer to each other: they would stay until the next full collection
    return Image.of(png.getvalue())


def pass_at_k_figure(results: Sequence[EvaluationResult], prefix: str = "") -> Figure:
    """Returns the curves of one or more evaluations, in order; their metrics' names start with ``prefix``.

    Of many, the first and the last are drawn, and some that are spread evenly between them.
    """
    # Not pyplot: it keeps every figure and asks for a display.
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    results = spread(results, _MOST_CURVES)
    last = len(results) - 1
    for number, result in enumerate(results):
        curve = pass_curve(result.metrics, prefix)
        edge = number in (0, last)
        colour = {0: "tab:orange", last: "tab:blue"}.get(number, "0.8")
        label = f"iteration {result.iteration}" if edge else None
        axes.plot(list(curve), list(curve.values()), color=colour, marker="o", label=label, zorder=2 if edge else 1)
    axes.set_xscale("log", base=2)
    ks = list(pass_curve(results[last].metrics, prefix))
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.set(xlabel="k", ylabel="Pass@k", ylim=(0, 1.02))
    axes.legend()
    return figure


def spread(results: Sequence[EvaluationResult], most: int) -> list[EvaluationResult]:
    """Returns at most so many results, two or more: the first, the last and evenly spread ones between them."""
    if len(results) <= most:
        return list(results)
    return [results[round(place * (len(results) - 1) / (most - 1))] for place in range(most)]
