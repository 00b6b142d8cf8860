"""The exploration contract: how one decode step turns logits into a token and the next input embedding.

    x_t = sum_{j<K} w_j E[id_j] + sigma noise(key, t)   at mixed positions,   x_t = E[o_t]   elsewhere.

A strategy is a frozen dataclass deriving from `Exploration`. It writes fixed-shape tensor operations over the
rows of a batch: no loop over rows, no value read back to the host. To add one, write the class in any file and
point ``exploration._target_`` at it; engines, replay and trainer work from the `Step` that it returns. Most strategies
need `step` only; the rest is for vectors that ids and weights do not give, densities and learned parameters.

What a class declares is tried when it is bound to a model (`ngrpo.exploration.runtime.dry_run`): a contradiction is
refused in one sentence, and an exception of the strategy's own code is shown with its own traceback.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from torch import Tensor

from ngrpo.exploration.context import RowContext, StepContext
from ngrpo.exploration.support import token_log_prob
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.types.records import Step

__all__ = ["Embed", "Exploration", "RowContext", "Step", "StepContext"]

Embed = Callable[[Tensor], Tensor]
"""Token ids [...] -> input embeddings [..., d]."""


class Exploration(ABC):
    """Base of all strategies.

    Attributes:
        width: K, the number of ids in a mixture; 0 for a strategy that mixes none.
        scored: its steps have ``scores``.
        dense: its steps have a ``vector``, as large as an embedding row.
        noisy: its steps have ``noise``.
        stateful: its steps have a ``state``, which the next step of the row gets.
        reads_embedding: `step` or `log_prob` uses ``ctx.embedding``.
        reads_hidden: `step` uses ``ctx.hidden``.
        end_token: text of the token that ends the reasoning; ignored by tokenizers that have no such token.
        refresh_every: rebuild the tables after every so many weight updates; 0 keeps the first ones.
        truncates: tokens are drawn from a truncated support.
        support: C, the most ids of a support of its steps, on which the probability of each token is renormalised
            (`ngrpo.exploration.support`); 0 for a strategy whose tokens the full softmax scores.
        deterministic: equal prompts give equal rollouts, as long as the reasoning lasts.
        detached: no gradient flows into E through the vectors of mixed positions.
        plain_reference: the reference scores the text alone, every position fed plainly.
    """

    width: int = 0
    scored: bool = False
    dense: bool = False
    noisy: bool = False
    stateful: bool = False
    reads_embedding: bool = False
    reads_hidden: bool = False
    end_token: str | None = None
    refresh_every: int = 0
    truncates: bool = False
    support: int = 0
    deterministic: bool = False
    detached: bool = False
    plain_reference: bool = False

    @property
    def mixes(self) -> bool:
        """Whether anything but E[o_t] is ever fed."""
        return self.width > 0 or self.dense

    @property
    def sums_rows(self) -> bool:
        """Whether x_t is sum_j w_j E[id_j] and nothing else, which engines compute inside their forward."""
        return not (self.dense or self.noisy) and type(self).inputs is Exploration.inputs

    @property
    def scores_tokens(self) -> bool:
        """Whether every step is scored by its token's log-prob."""
        return type(self).log_prob is Exploration.log_prob

    def prepare(self, embedding: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
        """Returns the tables that `step` needs, built from the served input embedding [V, d]."""
        return {}

    def initial_parameters(self, dim: int) -> dict[str, Tensor]:
        """Returns the initial values of what the strategy learns, for embeddings of width ``dim``.

        Float32, the same at every call. The policy holds and trains them; `inputs` gets their current values.
        """
        return {}

    def learning_rates(self) -> dict[str, float]:
        """Returns the learning rate of each learned parameter."""
        return {}

    def schedule(self, progress: Tensor) -> dict[str, Tensor]:
        """Returns what changes with training time, by name: logged as ``exploration/NAME``, one number each.

        Args:
            progress: see `StepContext`; int64 [].
        """
        return {}

    def unrecorded(self) -> "Exploration":
        """Returns the strategy as evaluations run it: without supports, whose width may cut what it draws from."""
        return self

    @abstractmethod
    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Chooses the token and the next input embedding.

        Args:
            logits: float32 [R, V], already divided by the sampling temperature. Not to be written into: at a
                temperature of one they are the model's own.
            ctx: keys, positions and tables of the same rows.
        """

    def inputs(self, embed: Embed, step: Step, ctx: RowContext, parameters: Mapping[str, Tensor]) -> Tensor:
        """Returns the vectors x_t of mixed positions; engines and trainer all call this.

        Default: the recorded vector, else the sum of rows with its noise, added up in float32.

        Args:
            embed: the model's input embedding module or the like, so that its scaling (Gemma's) applies.
            step: R recorded decisions; what comes of rows that are not mixed is thrown away.
            ctx: where they stand.
            parameters: current values of the learned parameters.

        Returns:
            [R, d], the embedding's dtype.
        """
        if step.vector is not None:
            return step.vector
        rows = embed(step.ids)
        mixture = (step.weights[..., None] * rows.float()).sum(dim=-2)
        if step.noise is not None:
            mixture = mixture + step.noise[:, None] * ctx.noise(rows.shape[-1])
        return mixture.to(rows.dtype)

    def log_prob(self, logits: Tensor, step: Step, ctx: RowContext) -> Tensor:
        """Scores a step, row by row; engine and trainer both call this. Default: the token's log-prob on its support.

        Args:
            logits: float32 [R, V], already divided by the sampling temperature; not to be written into.
            step: what was decided from these logits.
            ctx: where the rows stand, and the scoring model's embedding.

        Returns:
            float32 [R].
        """
        return token_log_prob(logits, step.token, step.support)
