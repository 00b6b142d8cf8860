"""Mean@1 and Pass@k of the served policy on a set of prompts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ngrpo.distributed.collectives import SINGLE_PROCESS, Ranks, gathered
from ngrpo.errors import SettingError
from ngrpo.evaluation.ks import powers_of_two
from ngrpo.evaluation.metrics import MeanAtK, PassAtK
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.token import TokenSampling
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.types.problems import Prompt


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found, over all ranks.

    Attributes:
        metrics: ``mean@1``, ``pass@k`` for the powers of two up to ``samples``, ``length`` (tokens) and ``truncated``.
        rates: the fraction of right samples of each prompt, in the prompts' order.
        lengths: the mean number of response tokens of each prompt.
    """

    metrics: dict[str, float]
    rates: list[float]
    lengths: list[float]


@dataclass(frozen=True)
class Evaluator:
    """How evaluation is done.

    Attributes:
        samples: rollouts a problem, n of the estimators.
        temperature: of the samples.
        exploration: plain sampling unless asked otherwise; mixing is a device of training rollouts.
    """

    samples: int = 16
    temperature: float = 1.0
    exploration: Exploration = field(default_factory=TokenSampling)

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise SettingError(f"evaluator.samples={self.samples} evaluates nothing; choose 1 or more.")
        if not 0 < self.temperature < math.inf:
            raise SettingError(
                f"evaluator.temperature={self.temperature} cannot divide logits; choose a positive value "
                "(evaluator.exploration.top_k=1 is greedy decoding)."
            )

    def run(
        self,
        worker: RolloutWorker,
        prompts: Sequence[Prompt],
        ranks: Ranks = SINGLE_PROCESS,
        lengths: Sequence[float] | None = None,
    ) -> Evaluated:
        """Evaluates this data rank's part of ``prompts`` (a collective).

        Args:
            worker: makes the rollouts.
            prompts: of all ranks.
            ranks: this one's place.
            lengths: about how many response tokens each prompt is expected to have, as an earlier evaluation found;
                what is expected to be long starts first.
        """
        rank, size, group = ranks.data_rank, ranks.data_size, ranks.data_group
        device = worker.device  # the ranks' backend may know no other
        metrics = {
            "mean@1": MeanAtK(process_group=group).to(device),
            "pass@k": PassAtK(powers_of_two(self.samples), process_group=group).to(device),
            "length": MeanAtK(process_group=group).to(device),
            "truncated": MeanAtK(process_group=group).to(device),
        }
        mine = list(prompts[rank::size])
        found: list[tuple[float, float]] = []
        expected = None if lengths is None else [round(length) for length in lengths[rank::size]]
        made = worker.evaluate(mine, self.samples, self.exploration, self.temperature, expected)
        if made is not None:
            tokens = torch.tensor([r.length for r in made.rollouts]).view(len(mine), -1)
            metrics["mean@1"].update(made.correct.to(device))
            metrics["pass@k"].update(made.correct.to(device))
            found = list(zip(made.correct.double().mean(-1).tolist(), tokens.double().mean(-1).tolist(), strict=True))
            metrics["length"].update(tokens.to(device))
            metrics["truncated"].update(made.truncated.view(len(mine), -1).to(device))
        computed = {name: metric.compute() for name, metric in metrics.items()}
        passes = computed.pop("pass@k")
        each = [(0.0, 0.0)] * len(prompts)
        for other, values in gathered((rank, found)):
            each[other::size] = values
        rates, means = ([one[column] for one in each] for column in (0, 1))
        return Evaluated({name: float(value) for name, value in {**computed, **passes}.items()}, rates, means)
