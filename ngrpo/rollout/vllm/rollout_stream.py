"""The requests of one session on vLLM: they wait for slots, run, and come back as rollouts."""

import hashlib
import pickle
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ngrpo.exploration.base import Exploration
from ngrpo.rollout.admission import admission_order
from ngrpo.rollout.engine import Report
from ngrpo.rollout.records.session import Admission, CollectedRecords, SessionRecords
from ngrpo.rollout.records.split import split_rollouts
from ngrpo.rollout.vllm.request_loop import Call, RequestLoop, Submission
from ngrpo.rollout.vllm.settings import GivenMixtures, request_arguments
from ngrpo.types.rollouts import Mixture, Request, Rollout, Sampling

Collect = Callable[[int, list[int], list[int]], CollectedRecords]
"""Returns the records of the session with that number: of slots, whose responses have so many tokens."""

_RECORDS_BYTES = 2**30
"""Most device memory for the records of a session, unless a full batch needs more."""

_COLLECT_SHARE = 8
"""Records are collected, and their slots given to waiting requests, when an eighth of the slots has finished."""


def slots_for(
    requests: int, strategy: Exploration, max_new_tokens: int, max_batch_size: int, distributions: bool = False
) -> int:
    """Returns how many slots a session gets: one a request as far as memory goes, else what keeps the batch full."""
    one = SessionRecords.empty(1, max_new_tokens, strategy, torch.device("meta"), None, distributions)
    channels = (one.tokens, one.log_probs, one.mixed, *one.record, one.state, one.support, *(one.distributions or ()))
    size = sum(channel.nbytes for channel in channels if channel is not None)
    return min(requests, max(_RECORDS_BYTES // size, max_batch_size + 2 * max_batch_size // _COLLECT_SHARE))


@dataclass
class _Ended:
    """The whole response of a request (see `ngrpo.rollout.records.split.Completion`)."""

    token_ids: Sequence[int]
    finish_reason: str | None


class VllmStream:
    """Takes requests, and returns their rollouts (see `ngrpo.rollout.engine.ServingStream`).

    Attributes:
        cached_tokens: of prompts and prefixes, computed for another request and found in vLLM's prefix cache.

    Args:
        loop: runs them.
        call: the session's.
        sampling: settings of all requests.
        strategy: the session's.
        slots: most requests with a record at once; the others wait.
        check: refuses requests that cannot be served.
        collect: collects records from the workers.
        report: is called for each request that finishes.
    """

    def __init__(
        self,
        loop: RequestLoop,
        call: Call,
        sampling: Sampling,
        strategy: Exploration,
        slots: int,
        check: Callable[[Sequence[Request]], None],
        collect: Collect,
        report: Report | None = None,
    ) -> None:
        self._loop = loop
        self._call = call
        self._sampling = sampling
        self._strategy = strategy
        self._check = check
        self._collect = collect
        self._report = report
        self._slots = slots
        self._requests: dict[int, Request] = {}
        self._waiting: deque[int] = deque()
        self._free = list(reversed(range(slots)))
        self._running: dict[str, tuple[int, int]] = {}
        self._finished: list[tuple[int, int, _Ended]] = []
        self._collected: dict[int, Rollout] = {}
        self._watched: set[int] = set()
        self._told: dict[int, list[int]] = {}
        self._news: dict[int, list[int]] = {}
        self._early: list[int] = []
        self._added = self._ended = self._tokens = 0
        self.cached_tokens = 0

    @property
    def unfinished(self) -> int:
        """Requests that were added and have not finished."""
        return len(self._waiting) + len(self._running) + len(self._early)

    def add(self, requests: Sequence[Request], watched: bool = False) -> None:
        """Adds requests, which are numbered from 0 in the order in which they come."""
        self._check(requests)
        order = admission_order(requests, self._sampling.max_new_tokens)
        first, self._added = self._added, self._added + len(requests)
        self._requests.update(enumerate(requests, first))
        self._waiting.extend(first + number for number in order)
        if watched:
            self._watched.update(range(first, self._added))
        self._admit()

    def wait(self) -> list[int]:
        """Waits until requests have finished or have news; returns the numbers of the finished, none when all have.

        Raises:
            RuntimeError: vLLM ended a response by itself.
        """
        if self._early:
            early, self._early = self._early, []
            return early
        if self._waiting and not self._running:
            self._make_room()
        if not self._running:
            return []
        outputs = self._loop.finished(self._call)
        finished = [number for output in outputs if (number := self._note(output)) is not None]
        if self._waiting and len(self._finished) * _COLLECT_SHARE >= self._slots:
            self._make_room()
        return finished

    def rollouts(self, numbers: Sequence[int]) -> list[Rollout]:
        """Returns the rollouts of finished requests, once each.

        Raises:
            StrategyError: the strategy's own code failed in vLLM's workers.
        """
        if not self._collected.keys() >= set(numbers):
            self._make_room()
        return [self._collected.pop(number) for number in numbers]

    def news(self) -> dict[int, list[int]]:
        """Returns the tokens of watched requests that have come since, of those that go on."""
        news, self._news = self._news, {}
        return news

    def withdraw(self, numbers: Collection[int]) -> None:
        """Makes nothing more of requests; of those that have finished it changes nothing."""
        gone = set(numbers)
        waiting = gone.intersection(self._waiting)
        self._waiting = deque(number for number in self._waiting if number not in waiting)
        running = self._taken_back(gone)
        self._free.extend(slot for _, slot in running)
        for number in (*waiting, *(number for number, _ in running)):
            del self._requests[number]
            self._forget(number)
        self._admit()

    def end(self, numbers: Collection[int]) -> None:
        """Has watched requests finish with the tokens that they have, if they have any."""
        for number, slot in self._taken_back({number for number in numbers if self._told.get(number)}):
            self._note_end(number, slot, self._told[number], None)
            self._early.append(number)

    def _taken_back(self, numbers: Collection[int]) -> list[tuple[int, int]]:
        """Takes requests that run back from vLLM; returns their numbers and slots."""
        names = [name for name, (number, _) in self._running.items() if number in numbers]
        if names:
            self._loop.withdraw(self._call, names)
        return [self._running.pop(name) for name in names]

    def interrupt(self) -> None:
        """Ends the `wait` of another thread, or its next one."""
        self._loop.interrupt(self._call)

    def _forget(self, number: int) -> None:
        self._watched.discard(number)
        self._news.pop(number, None)
        self._told.pop(number, None)

    def _make_room(self) -> None:
        """Collects what has finished, and gives its slots to waiting requests."""
        self._take_finished()
        self._admit()

    def _admit(self) -> None:
        """Gives free slots to waiting requests."""
        room = min(len(self._waiting), len(self._free))
        admitted = [(self._waiting.popleft(), self._free.pop()) for _ in range(room)]
        if admitted:
            self._loop.add(self._call, [self._submission(number, slot) for number, slot in admitted])

    def _submission(self, number: int, slot: int) -> Submission:
        from vllm.inputs import tokens_input

        request, name = self._requests[number], f"{self._call.number}-{number}"
        self._running[name] = (number, slot)
        given = () if request.prefix is None else request.prefix.ids
        admission = Admission(
            slot,
            number,
            request.key,
            len(request.prompt_ids),
            request.explore,
            request.prefix,
            request.forced_token,
            request.likeliest,
        )
        arguments = request_arguments(self._call.number, admission, self._mixtures(request))
        watched = number in self._watched
        if watched:
            self._call.watched.add(name)
        most = request.limit(self._sampling.max_new_tokens) - request.given
        parameters = _neutral(most, self._sampling.stop_ids, arguments, watched)
        return name, tokens_input([*request.prompt_ids, *given]), parameters

    def _mixtures(self, request: Request) -> GivenMixtures:
        """Returns what the blocks of a prefix hold beside tokens.

        Noise depends on the request's key, too, and learned gates on the session's parameters.
        """
        if request.prefix is None or request.prefix.mixture is None:
            return [], []
        own = () if self._strategy.sums_rows else (self._call.number, request.key)
        return request.prefix.mixture.positions.tolist(), digests(request.prefix.mixture, *own)

    def _note(self, output: Any) -> int | None:
        """Notes an output; returns the number of a request that it ends."""
        if output.request_id not in self._running:  # it was withdrawn
            return None
        number, slot = self._running[output.request_id]
        completion = output.outputs[0]
        tokens = completion.token_ids
        if number in self._watched:  # whose outputs have what is new
            tokens = self._told.setdefault(number, [])
            tokens += completion.token_ids
            if not output.finished:
                self._news.setdefault(number, []).extend(completion.token_ids)
                return None
        self._check_whole(number, len(tokens), completion.finish_reason)
        del self._running[output.request_id]
        self.cached_tokens += output.num_cached_tokens or 0
        self._note_end(number, slot, tokens, completion.finish_reason)
        return number

    def _check_whole(self, number: int, made: int, reason: str | None) -> None:
        """Raises a RuntimeError for a response that neither a stop token nor its budget ended: vLLM was paused, say."""
        request = self._requests[number]
        most = request.limit(self._sampling.max_new_tokens) - request.given
        if reason != "stop" and not (reason == "length" and made == most):
            raise RuntimeError(f"vLLM ended a response after {made} of at most {most} tokens by itself ({reason})")

    def _note_end(self, number: int, slot: int, tokens: Sequence[int], reason: str | None) -> None:
        self._forget(number)
        self._finished.append((number, slot, _Ended(tokens, reason)))
        self._ended += 1
        self._tokens += len(tokens)
        if self._report is not None:
            self._report(self._ended, self._tokens)

    def _take_finished(self) -> None:
        """Collects the records of what has finished, and frees the slots."""
        finished, self._finished = self._finished, []
        if not finished:
            return
        requests = [self._requests.pop(number) for number, _, _ in finished]
        slots = [slot for _, slot, _ in finished]
        completions = [completion for _, _, completion in finished]
        lengths = [
            request.given + len(completion.token_ids) for request, completion in zip(requests, completions, strict=True)
        ]
        rollouts = split_rollouts(requests, completions, self._collect(self._call.number, slots, lengths))
        self._free.extend(slots)
        self._collected.update((number, rollout) for (number, _, _), rollout in zip(finished, rollouts, strict=True))


def digests(mixture: Mixture, *own: Any) -> list[str]:
    """Returns a digest of what stands at each position of a record, and of what else its inputs depend on; [M]."""
    channels = [channel.contiguous() for channel in mixture.record if channel is not None]
    rows = zip(*((one if one.dim() > 1 else one[:, None]).view(torch.uint8).numpy() for one in channels), strict=True)
    start = hashlib.blake2b(pickle.dumps(own), digest_size=16)
    found = []
    for row in rows:
        one = start.copy()
        for channel in row:
            one.update(channel)
        found.append(one.hexdigest())
    return found


def _neutral(max_tokens: int, stop_ids: tuple[int, ...], arguments: dict[str, Any], watched: bool) -> Any:
    """Returns vLLM's parameters: all sampling is ours, and its own end-of-sequence rule is off."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        n=1,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        repetition_penalty=1.0,
        max_tokens=max_tokens,
        stop_token_ids=list(stop_ids),
        ignore_eos=True,
        detokenize=False,
        logprobs=None,
        output_kind=RequestOutputKind.DELTA if watched else RequestOutputKind.FINAL_ONLY,
        extra_args=arguments,
        skip_clone=True,  # they are made for this request
    )
