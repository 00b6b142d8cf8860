"""Several rollout servers of one model: work is split among them, and goes elsewhere when one fails."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ngrpo.errors import SettingError
from ngrpo.remote.connection import MissingTensors, OlderWeights, OtherWeights, ServerConnection, ServerUnavailable
from ngrpo.remote.tensor_parts import TensorPart, version_of

log = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 8.0
GENERATE, WEIGHTS, TENSORS = "/ngrpo/generate", "/ngrpo/weights", "/ngrpo/tensors"
"""Paths of the server's interface."""


class SentWeights(NamedTuple):
    """Weights that servers have taken.

    Attributes:
        version: what the servers call them.
        step: their number.
        size: bytes that were sent to each server.
    """

    version: str
    step: int
    size: int


class ServerGroup:
    """Servers that do the same work: which of them makes a rollout changes nothing, since its key decides.

    Args:
        servers: one or more.
        retries: further tries of a request, each at the next server, after a pause when all were tried.

    Raises:
        SettingError: there is no server, or a negative number of tries.
    """

    def __init__(self, servers: Sequence[ServerConnection], retries: int = 4) -> None:
        if not servers:
            raise SettingError("url=[] names no server; give one such as http://127.0.0.1:8000.")
        if retries < 0:
            raise SettingError(f"retries={retries} is negative; choose 0 or more.")
        self.servers = list(servers)
        self._retries = retries

    def generate(self, asked: Mapping[str, Any], requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Has requests made, an equal share by each server; a share goes elsewhere when its server fails.

        Args:
            asked: what the requests share.
            requests: those of one prompt next to each other.

        Returns:
            The rollouts' messages in the order of the requests, each with the ``weights`` that made it.

        Raises:
            ServerUnavailable: no server makes them.
            SettingError: a server refuses them.
        """
        shares = _split(requests, len(self.servers))

        def make(number: int) -> list[dict[str, Any]]:
            return self.anywhere(lambda one: _generated(one, asked, shares[number]), number)

        return [rollout for share in _in_threads(make, range(len(shares))) for rollout in share]

    def anywhere(self, ask: Callable[[ServerConnection], T], first: int = 0) -> T:
        """Asks one server, and the next ones when it cannot answer.

        Args:
            ask: asks it.
            first: number of the server that is asked first.

        Raises:
            ServerUnavailable: none answers; the last one's reason, but of other weights if any has such.
        """
        failures: list[ServerUnavailable] = []
        for attempt in range(self._retries + 1):
            if attempt and attempt % len(self.servers) == 0:
                time.sleep(min(_FIRST_PAUSE_S * 2 ** (attempt // len(self.servers) - 1), _LONGEST_PAUSE_S))
            server = self.servers[(first + attempt) % len(self.servers)]
            try:
                return ask(server)
            except ServerUnavailable as failure:
                failures.append(failure)
                lasting = isinstance(failure, MissingTensors | OtherWeights)
                if lasting and attempt + 1 >= len(self.servers):  # waiting changes nothing of it
                    break
                log.debug("asked elsewhere: %s", failure)
        raise next((one for one in failures if isinstance(one, OtherWeights | MissingTensors)), failures[-1])

    def everywhere(
        self, ask: Callable[[ServerConnection], T], among: Sequence[ServerConnection] | None = None
    ) -> dict[str, T]:
        """Asks all servers at once; one that cannot answer is left out, with a warning.

        Args:
            ask: asks one.
            among: these servers only; None for all.

        Returns:
            The answers by address.

        Raises:
            ServerUnavailable: none answers.
        """

        def attempt(server: ServerConnection) -> T | ServerUnavailable:
            try:
                return ask(server)
            except ServerUnavailable as failure:
                return failure

        servers = self.servers if among is None else among
        answers = dict(zip(servers, _in_threads(attempt, servers), strict=True))
        failed = [answer for answer in answers.values() if isinstance(answer, ServerUnavailable)]
        if len(failed) == len(answers):
            raise failed[0]
        for failure in failed:
            log.warning("%s; the others go on without it", failure)
        return {server.url: answer for server, answer in answers.items() if not isinstance(answer, ServerUnavailable)}

    def put(self, part: TensorPart) -> None:
        """Has every server hold a part of some tensors; those that have it are not sent it again."""
        self.everywhere(partial(_put, part))

    def send_weights(self, parts: Iterable[TensorPart], step: int) -> SentWeights:
        """Sends weights to all servers, which take them when all parts have come.

        Args:
            parts: of them.
            step: number of the weights, which grows; a larger one where a server has had that many of another sender.
        """
        names, size, taking = list[str](), 0, self.servers
        for part in parts:
            reached = self.everywhere(partial(_put, part), taking)
            taking = [server for server in taking if server.url in reached]
            names.append(part.name)
            size += len(part.octets)
        try:
            self._have_taken(names, step, taking)
        except OlderWeights:
            told = self.everywhere(lambda server: server.get(WEIGHTS), taking)
            step = 1 + max(int(one["step"]) for one in told.values())
            self._have_taken(names, step, taking)
        return SentWeights(version_of(names), step, size)

    def _have_taken(self, names: Sequence[str], step: int, among: Sequence[ServerConnection]) -> None:
        message = {"tensors": names, "step": step}
        self.everywhere(lambda server: server.post(WEIGHTS, message), among)


def _generated(
    server: ServerConnection, asked: Mapping[str, Any], requests: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Returns the rollouts that one server makes: those that were asked for, in their order, and no others."""
    answer = server.post(GENERATE, {**asked, "requests": list(requests)})
    rollouts, weights = answer.get("rollouts"), answer.get("weights")
    objects = isinstance(rollouts, list) and all(isinstance(one, dict) for one in [weights, *rollouts])
    if not objects or [one.get("key") for one in rollouts] != [one["key"] for one in requests]:
        raise ServerUnavailable(f"{server.url} answers with other rollouts than those that it was asked for")
    return [rollout | {"weights": weights} for rollout in rollouts]


def _put(part: TensorPart, server: ServerConnection) -> None:
    path = f"{TENSORS}/{part.name}"
    if not server.has(path):
        server.put(path, part.octets)


def _split(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Cuts a sequence into so many runs of almost equal length; into fewer where there are not as many items."""
    bounds = [len(items) * number // parts for number in range(parts + 1)]
    return [items[low:high] for low, high in zip(bounds, bounds[1:], strict=False) if high > low]


def _in_threads(work: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    """Calls a function with each item at the same time; the first exception is raised when all have ended."""
    if len(items) == 1:
        return [work(items[0])]
    with ThreadPoolExecutor(max_workers=max(1, len(items))) as pool:
        return list(pool.map(work, items))
