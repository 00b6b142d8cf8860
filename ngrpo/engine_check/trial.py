"""The trial of an engine before it is used: mixed rollouts, shared prefixes, and a transfer of weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ngrpo.distributed.collectives import gathered_everywhere
from ngrpo.engine_check import probe
from ngrpo.engine_check.comparison import Finding, compare
from ngrpo.engine_check.engine_rollouts import engine_rollouts
from ngrpo.engine_check.own_decisions import OwnModel
from ngrpo.engine_check.rolled_weights import rolled
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.types.rollouts import Request, Rollout


@dataclass(frozen=True)
class WeightTransfer:
    """The way of an engine's weights in training.

    Attributes:
        sleep: frees what the engine can free.
        send: wakes the engine and gives it the policy's present weights.
    """

    sleep: Callable[[], None]
    send: Callable[[], None]


@dataclass(frozen=True)
class EngineTrial:
    """Compares an engine, which serves the policy's weights, with PyTorch.

    Attributes:
        engine: of this rank.
        own: decides and scores in its place.
        limits: of the engine's requests.
        path: of the model, for what is said.
    """

    engine: RolloutEngine
    own: OwnModel
    limits: probe.Limits
    path: str

    def findings(self, transfer: WeightTransfer | None) -> list[Finding]:
        """Returns what all ranks found; the engine serves the same weights afterwards (a collective).

        Args:
            transfer: is tried with other weights, and lets the engine sleep while PyTorch computes; None for an engine
                that keeps the weights that it has loaded, and stays awake.

        Raises:
            RunError: the engine makes no rollouts.
        """
        asked = probe.requests(self.limits, self.own.bound.strategy.mixes)
        made = self._generate(asked)
        following = probe.followers(asked, made, self.limits, self.own.bound.strategy)
        followed = self._generate(following)
        if transfer is not None:
            transfer.sleep()
        found = self._compare(asked, made, "rollouts")
        found += self._compare(following, followed, "rollouts after a cached prefix", probe.repeated(made))
        if transfer is not None:
            found += self._transferred(asked, transfer)
        return [one for rank in gathered_everywhere(found) for one in rank]

    def _transferred(self, asked: Sequence[Request], transfer: WeightTransfer) -> list[Finding]:
        try:
            with rolled(self.own.policy.lm):
                transfer.send()
                made = self._generate(asked)
                transfer.sleep()
                return self._compare(asked, made, "rollouts after a transfer of weights")
        finally:
            transfer.send()

    def _compare(
        self, asked: Sequence[Request], made: Sequence[Rollout], name: str, cached: Sequence[Rollout] = ()
    ) -> list[Finding]:
        return compare(self.own, made, [one.explore for one in asked], name, cached)

    def _generate(self, asked: Sequence[Request]) -> list[Rollout]:
        return engine_rollouts(self.engine, asked, probe.sampling(self.limits), lambda: self.own.bound, self.path)
