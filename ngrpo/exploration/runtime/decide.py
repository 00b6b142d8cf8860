"""The decode step of a strategy, the same tensor function in every engine."""

from torch import Tensor

from ngrpo.exploration.base import Exploration, Step, StepContext


def decide(
    strategy: Exploration, logits: Tensor, temperature: float, context: StepContext, explore: Tensor | None
) -> tuple[Step, Tensor]:
    """Chooses tokens and mixtures and scores them.

    Args:
        strategy: decides the rows of ``explore``; the others are sampled plainly.
        logits: the model's, any float dtype; [R, V].
        temperature: tau.
        context: of the same rows.
        explore: bool [R]; None for all rows, which saves the second draw.

    Returns:
        The step and its log-probs, float32 [R].
    """
    scaled = logits.float() / temperature
    step = strategy.step(scaled, context)
    if explore is not None:
        token = step.token.where(explore, context.sample(scaled))
        step = step.with_tokens(token, step.mixed & explore, ~explore)
    return step, strategy.log_prob(scaled, step, context)
