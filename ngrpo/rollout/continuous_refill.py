"""Dynamic sampling without rounds: what replaces a dropped group starts as soon as it is known to be needed.

Rounds wait for the slowest response of each. Here the same prompts are generated for, whatever finishes first: a prompt
starts when it is certain that rounds would come to it, however the groups that are still running turn out.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ngrpo.rollout.dynamic_sampling import DynamicSampling, certain_prompts, round_sizes
from ngrpo.rollout.engine import Report, RolloutStream
from ngrpo.types.experience import Experience, join_groups
from ngrpo.types.problems import Prompt
from ngrpo.types.rollouts import Request, Rollout


class GroupStream(Protocol):
    """Groups of rollouts that are made and scored beside one another."""

    def add(self, prompts: Sequence[Prompt]) -> None:
        """Adds prompts, which are numbered from 0 in the order in which they come."""

    def take(self) -> list[tuple[int, Experience]]:
        """Waits for scored groups; returns them with their numbers, none when all were taken."""


def refilled_rounds(
    groups: GroupStream, prompts: Sequence[Prompt], draw: Callable[[int], list[Prompt]], sampling: DynamicSampling
) -> list[Experience]:
    """Generates what rounds of `DynamicSampling` would; returns an experience a round.

    Args:
        groups: makes them.
        prompts: of the first round.
        draw: returns so many further prompts.
        sampling: which groups are dropped, and how many rounds there may be.
    """
    groups.add(prompts)
    dropped = [False] * len(prompts)
    made: dict[int, Experience] = {}
    while scored := groups.take():
        for number, group in scored:
            made[number], dropped[number] = group, not bool(sampling.keep(group)[0])
        missing = certain_prompts(len(prompts), dropped, sampling.max_refills) - len(dropped)
        if missing:
            groups.add(draw(missing))
            dropped += [False] * missing
    waiting = iter(made[number] for number in range(len(dropped)))
    sizes = round_sizes(len(prompts), dropped, sampling.max_refills)
    rounds = [[next(waiting) for _ in range(size)] for size in sizes]
    return [join_groups(one, one) for one in rounds]


class ScoredGroups:
    """Groups that an engine makes, and that are scored when their last response has come.

    Args:
        stream: of the engine.
        size: G.
        requests: returns the G requests of each prompt.
        score: scores a group that took so many seconds.
    """

    def __init__(
        self,
        stream: RolloutStream,
        size: int,
        requests: Callable[[Sequence[Prompt]], list[Request]],
        score: Callable[[Prompt, list[Rollout], float], Experience],
    ) -> None:
        self._stream = stream
        self._size = size
        self._requests = requests
        self._score = score
        self._prompts: list[Prompt] = []
        self._left: list[int] = []

    def add(self, prompts: Sequence[Prompt]) -> None:
        """Starts the groups of further prompts."""
        self._prompts += prompts
        self._left += [self._size] * len(prompts)
        self._stream.add(self._requests(prompts))

    def take(self) -> list[tuple[int, Experience]]:
        """Returns the next groups with their numbers; the seconds of generation count for the first of them."""
        start = time.perf_counter()
        whole = self._wait()
        rollouts = self._stream.rollouts([n * self._size + sample for n in whole for sample in range(self._size)])
        seconds = time.perf_counter() - start
        scored = []
        for place, number in enumerate(whole):
            own = rollouts[place * self._size : (place + 1) * self._size]
            scored.append((number, self._score(self._prompts[number], own, 0.0 if place else seconds)))
        return scored

    def _wait(self) -> list[int]:
        """Waits until groups are whole; returns their numbers."""
        whole: list[int] = []
        while not whole and (finished := self._stream.wait()):
            for number in finished:
                self._left[number // self._size] -= 1
            whole = sorted({n // self._size for n in finished if self._left[n // self._size] == 0})
        return whole


class GrowingProgress:
    """Progress of a stream for an observer that is told a total at the start: it begins anew when more is added.

    Args:
        begin: `ngrpo.rollout.worker.Observer.generating`.
    """

    def __init__(self, begin: Callable[[int], Report]) -> None:
        self._begin = begin
        self._total = self._finished = self._tokens = 0

    def grow(self, number: int) -> None:
        """Is told of further rollouts."""
        self._total += number
        self._before = (self._finished, self._tokens)
        self._report = self._begin(self._total - self._finished)

    def __call__(self, finished: int, tokens: int) -> None:
        """Is called by the engine with all that has finished."""
        self._finished, self._tokens = finished, tokens
        self._report(finished - self._before[0], tokens - self._before[1])


class ReplayedDraw:
    """Draws that can be asked for anew, after the engine that they were made for has failed.

    Args:
        draw: takes further prompts from a stream that does not go back.
    """

    def __init__(self, draw: Callable[[int], list[Prompt]]) -> None:
        self._draw = draw
        self._drawn: list[Prompt] = []

    def from_start(self) -> Callable[[int], list[Prompt]]:
        """Returns draws that begin with the first prompt again."""
        taken = 0

        def draw(number: int) -> list[Prompt]:
            nonlocal taken
            lacking = taken + number - len(self._drawn)
            if lacking > 0:
                self._drawn += self._draw(lacking)
            taken += number
            return self._drawn[taken - number : taken]

        return draw
