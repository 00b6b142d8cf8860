"""The length of a run: in iterations and, with a limit, in generated tokens."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RunLength:
    """When a run is over: at whichever of its two limits comes first.

    Attributes:
        iterations: rollout batches to train on, those before a resume included.
        max_generated_tokens: response tokens of the training rollouts of all ranks, those that dynamic sampling drops
            and those before a resume included; None for no limit. The iteration that reaches it is the last.
    """

    iterations: int
    max_generated_tokens: int | None = None

    def reached(self, iterations_done: int, generated_tokens: int) -> bool:
        """Says whether the run is over."""
        return self.share(iterations_done, generated_tokens) >= 1.0

    def share(self, iterations_done: int, generated_tokens: int) -> float:
        """Returns how much of the run is done, by the limit that is nearer; 1 at the end, or a little above."""
        return max(iterations_done / self.iterations, self.token_share(generated_tokens))

    def token_share(self, generated_tokens: int) -> float:
        """Returns how much of the token limit is used up; 0 without one."""
        return generated_tokens / self.max_generated_tokens if self.max_generated_tokens else 0.0
