"""The check of a strategy's gradients: the trainer's backward pass through its own scores and inputs, tried once."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import embedding as look_up

from ngrpo.exploration.base import Exploration, RowContext, Step
from ngrpo.exploration.runtime.step_check import refusal


def check_gradients(
    strategy: Exploration, step: Step, logits: Tensor, context: RowContext, parameters: Mapping[str, Tensor]
) -> None:
    """Refuses a `log_prob` or `inputs` of the strategy's own that has no gradient, or one that is not finite.

    PyTorch records none in inference mode: nothing is checked there.

    Args:
        strategy: whose methods are tried; those of the base class are not.
        step: as the trainer has it.
        logits: of its rows; float32 [R, V].
        context: of its rows, with the whole table [V, d].
        parameters: what the strategy has learned.

    Raises:
        SettingError: which gradient is missing, or is not finite.
    """
    if torch.is_inference_mode_enabled():
        return
    with torch.enable_grad():
        if not strategy.scores_tokens:
            _check_scores(strategy, step, logits.clone().requires_grad_(), context)
        mixed = step.mixed.nonzero()[:, 0]
        own = type(strategy).inputs is not Exploration.inputs or bool(parameters)
        if own and not strategy.detached and len(mixed):
            rows = RowContext(context.keys[mixed], context.positions[mixed], context.embedding)
            _check_inputs(strategy, step.rows(mixed), rows, parameters)


def _check_scores(strategy: Exploration, step: Step, logits: Tensor, context: RowContext) -> None:
    scores = strategy.log_prob(logits, step, context)
    (gradient,) = _gradients(scores, [logits])
    if gradient is None:
        raise refusal(strategy, "log_prob has no gradient towards its logits, so that nothing is learned; detach none")
    _check_finite(strategy, "log_prob", "its logits", gradient)


def _check_inputs(strategy: Exploration, step: Step, context: RowContext, parameters: Mapping[str, Tensor]) -> None:
    """Differentiates by the rows that were looked up: a gradient of the table would be as large as the table."""
    rows: list[Tensor] = []

    def embed(ids: Tensor) -> Tensor:
        rows.append(look_up(ids, context.embedding).detach().requires_grad_())
        return rows[-1]

    learned = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
    vectors = strategy.inputs(embed, step, context, learned)
    gradients = _gradients(vectors, [*learned.values(), *rows])
    for name, gradient in zip(learned, gradients, strict=False):
        if gradient is None:
            raise refusal(
                strategy,
                f"inputs has no gradient towards the learned {name}, so that it is not learned; use "
                f"parameters[{name!r}] in it, without detach or no_grad",
            )
        _check_finite(strategy, "inputs", f"the learned {name}", gradient)
    for gradient in gradients[len(learned) :]:
        if gradient is not None:
            _check_finite(strategy, "inputs", "the embedding", gradient)


def _gradients(values: Tensor, by: list[Tensor]) -> tuple[Tensor | None, ...]:
    if not values.requires_grad:
        return (None,) * len(by)
    return torch.autograd.grad(values.float().sum(), by, allow_unused=True)


def _check_finite(strategy: Exploration, method: str, of: str, gradient: Tensor) -> None:
    if not bool(gradient.isfinite().all()):
        raise refusal(
            strategy,
            f"the gradient of {method} towards {of} is not finite, as that of torch.where is where the branch that is "
            "not taken has none; clamp what logarithms, roots and divisions get",
        )
