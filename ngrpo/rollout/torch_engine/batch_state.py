"""The state and records of the rollouts that the torch engine is running: one row each, without gaps."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration, Step
from ngrpo.exploration.context import is_one_of
from ngrpo.exploration.runtime.decide import Steering
from ngrpo.exploration.runtime.empty_record import empty_record, empty_support
from ngrpo.types.distributions import Distributions
from ngrpo.types.rollouts import Mixture, Prefix, Request, Rollout, Sampling, StopReason
from ngrpo.types.support import NO_ID, Support


class Progress(NamedTuple):
    """The rows at a look of the host.

    Attributes:
        finished: rows whose rollout has ended.
        longest: most tokens of a row that goes on, prompt included; 0 if none does.
        left: most tokens that such a row may still emit.
    """

    finished: list[int]
    longest: int
    left: int


class BatchState:
    """Up to S running rollouts; the first ``active`` rows are in use.

    Steps are recorded without a look of the host: a row notes by itself that its rollout has ended, and what is decided
    for it from then on goes to a last place, T, that no rollout has. The same happens to rows that are not in use,
    which stand at position 0.

    Args:
        capacity: S.
        strategy: says which channels are recorded.
        sampling: bounds and stop ids.
        end_ids: ids that end the reasoning; int64 [E].
        like: an embedding row tensor, for device, dtype and width d.
        all_explore: no request of the call is sampled plainly.
        steered: some may ask for tokens, see `Request.steered`.
    """

    def __init__(
        self,
        capacity: int,
        strategy: Exploration,
        sampling: Sampling,
        end_ids: Tensor,
        like: Tensor,
        all_explore: bool,
        steered: bool = False,
    ) -> None:
        budget, device = sampling.max_new_tokens, like.device
        self.sampling = sampling
        self._stateful = strategy.stateful
        self.end_ids = end_ids
        self.stop_ids = torch.tensor(sampling.stop_ids, device=device)
        self.active = 0
        self.request = torch.zeros(capacity, dtype=torch.int64)
        self.keys = torch.zeros(capacity, dtype=torch.int64, device=device)
        self.prompt_length = torch.ones(capacity, dtype=torch.int64, device=device)
        self.limit = torch.zeros(capacity, dtype=torch.int64, device=device)
        self.emitted = torch.zeros(capacity, dtype=torch.int64, device=device)
        self.ended = torch.zeros(capacity, dtype=torch.bool, device=device)
        self.done = torch.ones(capacity, dtype=torch.bool, device=device)
        self.explore = None if all_explore else torch.ones(capacity, dtype=torch.bool, device=device)
        self.likeliest = torch.zeros(capacity, dtype=torch.bool, device=device) if steered else None
        self.state = torch.zeros(capacity if strategy.stateful else 0, dtype=torch.int32, device=device)
        self.inputs = like.new_zeros(capacity, like.shape[-1])
        places = (capacity, budget + 1)
        self.tokens = torch.zeros(places, dtype=torch.int64, device=device)
        self.log_probs = torch.zeros(places, device=device)
        self.mixed = torch.zeros(places, dtype=torch.bool, device=device)
        vectors = like.new_zeros(*places, like.shape[-1]) if strategy.dense else None
        self.records = empty_record(strategy, places, device, vectors)
        self.support = empty_support(strategy, places, device)
        self.distributions = Distributions.empty(places, device) if sampling.distributions else None

    def admit(self, numbers: list[int], requests: list[Request]) -> slice:
        """Opens a row for each request (``numbers`` are their indices in the result); returns the rows."""
        rows = slice(self.active, self.active + len(requests))
        device = self.keys.device
        self.request[rows] = torch.tensor(numbers)
        self.keys[rows] = torch.tensor([r.key for r in requests], device=device)
        self.prompt_length[rows] = torch.tensor([len(r.prompt_ids) for r in requests], device=device)
        budget = self.sampling.max_new_tokens
        self.limit[rows] = torch.tensor([r.limit(budget) for r in requests], device=device)
        if self.explore is not None:
            self.explore[rows] = torch.tensor([r.explore for r in requests], device=device)
        if self.likeliest is not None:
            self.likeliest[rows] = torch.tensor([r.likeliest for r in requests], device=device)
        self.emitted[rows] = 0
        self.ended[rows] = False
        self.done[rows] = False
        self.state[rows] = 0
        self.active = rows.stop
        for row, request in enumerate(requests, start=rows.start):
            if request.prefix is not None:
                self._write_prefix(row, len(request.prompt_ids), request.prefix)
        return rows

    def _write_prefix(self, row: int, prompt: int, prefix: Prefix) -> None:
        """Fills the first F places of a row as if the given tokens had been chosen."""
        device, given = self.keys.device, slice(0, len(prefix.ids))
        ids = torch.tensor(prefix.ids, device=device)
        self.tokens[row, given] = ids
        self.log_probs[row, given] = 0.0
        self.mixed[row, given] = False
        if self.support is not None:
            self.support[row, given] = NO_ID
        if self.distributions is not None:
            self.distributions.clear((row, given))
        self.emitted[row] = given.stop
        self.ended[row] = torch.isin(ids, self.end_ids).any()
        if prefix.mixture is not None and len(prefix.mixture.positions):
            index = prefix.mixture.positions.to(device) - prompt
            at = (torch.full_like(index, row), index)
            self.mixed[at] = True
            self.records.put(at, prefix.mixture.record.map(lambda channel: channel.to(device)))

    def steering(self, rows: slice, forced: Tensor | None) -> Steering | None:
        """Returns the tokens that are asked for in a step of ``rows``; ``forced`` is that of `Steering`."""
        return None if self.likeliest is None else Steering(self.likeliest[rows].clone(), forced)

    def record(
        self,
        rows: slice,
        step: Step,
        log_probs: Tensor,
        inputs: Tensor,
        distributions: Distributions | None = None,
    ) -> None:
        """Records a step of ``rows`` at its response index; ``inputs`` [R, d] is what they are fed next."""
        done, emitted, budget = self.done[rows], self.emitted[rows], self.sampling.max_new_tokens
        at = (
            torch.arange(rows.start, rows.stop, device=self.keys.device),
            torch.where(done, budget, emitted),
        )
        self.tokens[at] = step.token
        self.log_probs[at] = log_probs
        self.mixed[at] = step.mixed
        self.records.put(at, step.record)
        if self.support is not None and step.support is not None:
            self.support[at] = step.support.int()
        if self.distributions is not None and distributions is not None:
            self.distributions.put(at, distributions)
        if step.state is not None:
            self.state[rows] = step.state
        self.inputs[rows] = inputs
        self.ended[rows] |= is_one_of(step.token, self.end_ids)
        emitted += ~done
        done |= is_one_of(step.token, self.stop_ids) | (emitted == self.limit[rows])

    def last_positions(self, rows: int) -> Tensor:
        """Returns the absolute slot of the newest token of each of the first rows; int64 [rows]."""
        return self.prompt_length[:rows] + self.emitted[:rows] - 1

    def look(self) -> Progress:
        """Waits for the device, and says how far the rows are."""
        rows = slice(0, self.active)
        left = torch.where(self.done[rows], 0, self.limit[rows] - self.emitted[rows])
        lengths, lefts = torch.stack((self.prompt_length[rows] + self.emitted[rows], left)).tolist()
        running = [length for length, more in zip(lengths, lefts, strict=True) if more]
        finished = [row for row, more in enumerate(lefts) if not more]
        return Progress(finished, max(running, default=0), max(lefts, default=0))

    def take(self, rows: Sequence[int], requests: Sequence[Request]) -> list[Rollout]:
        """Returns the rollouts of finished rows; one transfer a channel, however many rows there are."""
        at = torch.tensor(rows, device=self.keys.device)
        lengths = self.emitted[at].tolist()
        filled = slice(0, max(lengths))

        def host(channel: Tensor) -> Tensor:
            return channel[at, filled].cpu()

        tokens, log_probs, mixed = (host(channel) for channel in (self.tokens, self.log_probs, self.mixed))
        records = self.records.map(host)
        distributions = None if self.distributions is None else self.distributions.map(host)
        # Rollout by rollout: of all positions at once the places would take many times what is in them.
        taken = zip(rows, lengths, strict=True)
        supports = [None if self.support is None else Support.of(self.support[row, :length]) for row, length in taken]

        def rollout(row: int, length: int, request: Request) -> Rollout:
            indices = mixed[row, :length].nonzero()[:, 0]
            return Rollout(
                key=request.key,
                prompt_ids=torch.tensor(request.prompt_ids),
                # Copies: a view would keep the tensors of all rows.
                response_ids=tokens[row, :length].clone(),
                log_probs=log_probs[row, :length].clone(),
                mixture=Mixture(indices + len(request.prompt_ids), records.map(lambda channel: channel[row, indices])),
                stop_reason=self._reason(int(tokens[row, length - 1])),
                prefix_length=request.given,
                support=supports[row],
                distributions=distributions and distributions.map(lambda channel: channel[row, :length].clone()),
            )

        return [rollout(*one) for one in zip(range(len(rows)), lengths, requests, strict=True)]

    def _reason(self, last: int) -> StopReason:
        return StopReason.STOP if last in self.sampling.stop_ids else StopReason.LENGTH

    def new_tokens(self, seen: Mapping[int, int]) -> dict[int, list[int]]:
        """Returns the tokens of rows beyond those that were seen; one transfer, however many rows there are.

        Args:
            seen: response tokens by row, at least one row.
        """
        at = torch.tensor(list(seen), device=self.keys.device)
        ends = self.emitted[at].tolist()
        first, last = min(seen.values()), max(ends)
        block = self.tokens[at, first:last].tolist()
        return {
            row: tokens[start - first : end - first]
            for (row, start), end, tokens in zip(seen.items(), ends, block, strict=True)
        }

    def end(self, rows: Sequence[int]) -> None:
        """Has rows decide nothing more; the next look finds them finished."""
        self.done[torch.tensor(rows, device=self.keys.device)] = True

    def grow(self, capacity: int) -> None:
        """Makes room for more rows; the tensors are others afterwards."""

        def longer(channel: Tensor, fill: int = 0) -> Tensor:
            more = channel.new_full((capacity - len(channel), *channel.shape[1:]), fill)
            return torch.cat((channel, more))

        self.prompt_length, self.done = longer(self.prompt_length, 1), longer(self.done, 1)
        self.request, self.keys, self.limit = longer(self.request), longer(self.keys), longer(self.limit)
        self.emitted, self.ended, self.inputs = longer(self.emitted), longer(self.ended), longer(self.inputs)
        self.tokens, self.log_probs, self.mixed = longer(self.tokens), longer(self.log_probs), longer(self.mixed)
        self.records = self.records.map(longer)
        if self.support is not None:
            self.support = longer(self.support, NO_ID)
        if self.distributions is not None:
            self.distributions = self.distributions.map(longer)
        if self.explore is not None:
            self.explore = longer(self.explore, 1)
        if self.likeliest is not None:
            self.likeliest = longer(self.likeliest)
        if self._stateful:
            self.state = longer(self.state)

    def drop(self, finished: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Closes rows by moving the last active ones into the gaps.

        Returns:
            The moves made, (source, target), int64 each: the cache must follow them.
        """
        active, gone = self.active - len(finished), set(finished)
        device = self.keys.device
        source = torch.tensor([row for row in range(active, self.active) if row not in gone], dtype=torch.int64)
        target = torch.tensor([row for row in sorted(gone) if row < active], dtype=torch.int64)
        self.request[target] = self.request[source]
        source, target = source.to(device), target.to(device)
        fixed = (self.keys, self.prompt_length, self.limit, self.emitted, self.ended, self.done, self.inputs)
        recorded = (self.tokens, self.log_probs, self.mixed, self.support, *self.records, *(self.distributions or ()))
        for channel in (*fixed, self.explore, self.likeliest, *recorded):
            if channel is not None:
                channel[target] = channel[source]
        if len(self.state):
            self.state[target] = self.state[source]
        closed = slice(active, self.active)
        self.done[closed], self.prompt_length[closed], self.emitted[closed] = True, 1, 0
        self.active = active
        return source, target
