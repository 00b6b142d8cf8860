"""Trees of LATR, held to growth step by step by a model whose distributions are written out."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

import pytest
import torch
from made_rollouts import rollout
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.exploration.random import request_key
from ngrpo.rollout.scheduling.growth import GrowingTree, grow
from ngrpo.rollout.scheduling.latr import LookaheadTree, differs, edit_distance
from ngrpo.rollout.scheduling.tree import Branch, Response
from ngrpo.types.distributions import Distributions
from ngrpo.types.rollouts import Request, Rollout, StopReason

VECTOR = json.loads((ROOT / "tests/vectors2.json").read_text())["latr_branching"]
STOP, LOUD, DRAWN = 3, 1000, 100000
"""Tokens from LOUD on change what follows; those from DRAWN on were drawn by a request's key."""


@dataclass(frozen=True)
class Model:
    """Says the two likeliest tokens after a text, and their probabilities; by its length and its loud tokens."""

    seed: int
    stop: float = 0.03
    loud: float = 0.5

    def __call__(self, text: Sequence[int]) -> tuple[int, int, float, float]:
        heard = [token for token in text if token >= LOUD]
        draws = [request_key(self.seed, len(text), *heard, number) / 2**63 for number in range(6)]
        first = STOP if draws[0] < self.stop else 10 + int(900 * draws[1])
        second = STOP if draws[2] < self.stop and first != STOP else (LOUD if draws[2] < self.loud else 10) + first
        return first, second, 0.3 + 0.3 * draws[4], 0.3 * draws[5]


class Written:
    """An engine with that model: it takes the likeliest token where it is asked to, and draws others else."""

    def __init__(self, model: Model, limit: int) -> None:
        self.model, self.limit = model, limit
        self.calls: list[list[Request]] = []

    def __call__(self, requests: list[Request]) -> list[Rollout]:
        self.calls.append(requests)
        return [self.one(request) for request in requests]

    def one(self, request: Request) -> Rollout:
        ids = [] if request.prefix is None else list(request.prefix.ids)
        while len(ids) < request.limit(self.limit) and (not ids or ids[-1] != STOP):
            draw = request_key(request.key, len(ids)) / 2**63
            token = self.model(ids)[0] if request.likeliest else STOP if draw < 0.05 else DRAWN + int(1e6 * draw)
            forced = request.forced_token if len(ids) == request.given else None
            ids.append(token if forced is None else forced)
        read = [self.model(ids[:index]) for index in range(len(ids))]
        made = rollout(
            request.prompt_ids,
            ids,
            stop=StopReason.STOP if ids[-1] == STOP else StopReason.LENGTH,
            key=request.key,
        )
        found = Distributions(
            torch.zeros(len(ids)),
            torch.tensor([one[:2] for one in read], dtype=torch.int32),
            torch.tensor([[log(p) for p in one[2:]] for one in read]),
        )
        return replace(made, prefix_length=request.given, distributions=found)


def grown_step_by_step(
    model: Model, by: LookaheadTree, size: int, limit: int, given: Sequence[int]
) -> tuple[list[list[int]], int]:
    """Returns the responses that are alive when a tree has grown, and their tokens then, given ones included."""
    texts, births, parents = [list(given)], [len(given)], [-1]

    def ended(text: Sequence[int]) -> bool:
        return text[-1:] == [STOP]

    for step in range(len(given), min(len(given) + by.growth, limit)):
        for number in range(len(texts)):
            if ended(texts[number]):
                continue
            first, second, p, q = model(texts[number])
            if q > by.second and p - q < by.gap and len(texts) < size:
                texts.append([*texts[number], second])
                births.append(step)
                parents.append(number)
            texts[number].append(first)
        gone: set[int] = set()
        for number, (text, birth, parent) in enumerate(zip(texts, births, parents, strict=True)):
            r, other = step + 1 - birth, texts[parent]
            compared = parent >= 0 and r in by.lookahead and not ended(text) and not ended(other)
            if parent in gone or (compared and edit_distance(text[-r:], other[-r:]) / r < by.distance):
                gone.add(number)
        kept = [number for number in range(len(texts)) if number not in gone]
        parents = [kept.index(parents[number]) if parents[number] >= 0 else -1 for number in kept]
        texts, births = [texts[number] for number in kept], [births[number] for number in kept]
        if all(map(ended, texts)) or (len(texts) == size and all(b + by.lookahead[-1] < step for b in births)):
            return texts, step + 1
    return texts, min(len(given) + by.growth, limit)


SETTINGS = [
    LookaheadTree(lookahead=(4, 6, 10), growth=40),
    LookaheadTree(second=0.1, gap=0.4, lookahead=(3, 7), growth=25),
    LookaheadTree(second=0.01, gap=0.6, lookahead=(5,), distance=0.7, growth=60),
    LookaheadTree(second=0.2, gap=0.3, lookahead=(2, 3), distance=1.0, growth=11),
]


def roots(size: int, given: Rollout | None = None) -> list[Request]:
    prefix = None if given is None else given.cut(given.length)
    return [Request((1, 2), request_key(7, sample), prefix=prefix) for sample in range(size)]


@pytest.mark.parametrize("by", SETTINGS, ids=lambda one: f"{one.second}-{one.growth}")
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_a_tree_is_that_of_growth_step_by_step(by: LookaheadTree, size: int) -> None:
    limit, seen = 48, Counter[str]()
    for seed in range(24):
        model = Model(seed, stop=0.05 if seed % 2 else 0.002, loud=(0.2, 0.5, 0.9)[seed % 3])
        given = rollout((1, 2), [20, 21, LOUD], stop=StopReason.LENGTH) if seed % 4 == 3 else None
        start = [] if given is None else given.response_ids.tolist()
        (tree,) = grow(by, [roots(size, given)], limit, Written(model, limit))
        texts, stop = grown_step_by_step(model, by, size, limit, start)
        found = Counter(tuple(leaf.response_ids[:stop].tolist()) for leaf in tree.leaves)
        alive = Counter(map(tuple, texts))
        assert len({leaf.key for leaf in tree.leaves}) == size
        assert not alive - found
        for more in (found - alive).elements():  # what was missing of G
            goes_on = texts[0][-1:] != [STOP] and stop < limit
            assert more == tuple(texts[0]) if goes_on else more[len(start)] >= DRAWN or more[len(start)] == STOP
        seen["forked"] += len(texts) > 1
        seen["full"] += len(texts) == size
        seen["given up"] += tree.pruned_tokens > 0
        seen["from the prompt"] += len(texts) < size and texts[0][-1:] == [STOP]
        seen["stopped early"] += stop < min(len(start) + by.growth, limit)
    if size > 2:
        assert all(seen[name] for name in ("forked", "full", "given up", "stopped early"))


def test_rounds_are_few() -> None:
    """Forks are asked for before the pieces between them are known: far fewer rounds than forks that were tried."""
    rounds, tried = 0, 0
    for seed in range(20):
        engine = Written(Model(seed, stop=0.0), 200)
        grow(LookaheadTree(growth=150), [roots(8)], 200, engine)
        rounds += len(engine.calls)
        tried += sum(request.forced_token is not None for requests in engine.calls for request in requests)
    assert rounds < min(12 * 20, 0.7 * tried)


def test_rows_of_the_vector_fork_as_it_says() -> None:
    inputs = VECTOR["inputs"]
    by = LookaheadTree(inputs["tau_abs"], inputs["tau_rel"])
    for row, tokens in VECTOR["outputs"]["tokens by row"].items():
        probabilities = torch.tensor(json.loads(row))
        values, ids = probabilities.sort(descending=True, stable=True)
        read = Distributions(torch.zeros(1), ids[None, :2].int(), values[None, :2].log())
        for drawn, places in ((int(ids[0]), {0: int(ids[1])} if len(tokens) > 1 else {}), (int(ids[3]), {})):
            made = replace(rollout((1,), [drawn]), distributions=read)
            assert by.places(Response(made, Branch(likeliest=True), True, ((0, 0),))) == places
        assert tokens == ids[: len(tokens)].tolist()


def test_vectors_of_the_comparison() -> None:
    inputs, parent = VECTOR["inputs"], (5, 1, 2, 3, 4)
    for own, kept in VECTOR["outputs"]["kept after lookahead"].items():
        assert len(json.loads(own)) == inputs["r"]
        assert differs(tuple(json.loads(own)), parent, inputs["tau_ed"]) is kept
    assert [edit_distance(*pair) for pair in (("kitten", "sitting"), ("", "abc"), ("flaw", "lawn"))] == [3, 3, 2]


def test_a_fork_has_the_second_token_and_its_log_prob_wherever_it_stands() -> None:
    """The first token of a response, and the one that ends it, too."""
    model, by = Model(0), LookaheadTree(0.25, 0.15, (3,), growth=9)
    tree = GrowingTree(roots(4), 12, by)
    asked = tree.ask()
    assert [branch for branch, _ in asked] == [Branch(until=3, likeliest=True)]
    made = Written(model, 12).one(asked[0][1])
    close = torch.tensor([[0.5, 0.4], [0.9, 0.1], [0.5, 0.4]]).log()
    read = Distributions(torch.zeros(3), torch.stack((made.response_ids, torch.tensor([7, 8, STOP])), -1), close)
    tree.add(asked, [replace(made, distributions=read)])
    asked = tree.ask()
    forks = {branch.at: request for branch, request in asked if branch.forced_token is not None}
    assert {at: request.forced_token for at, request in forks.items()} == {0: 7, 2: STOP}
    assert [request.given for request in forks.values()] == [0, 2]
    assert all(request.likeliest for _, request in asked)
    assert [branch for branch, _ in asked if branch.forced_token is None] == [Branch(0, 3, 6, likeliest=True)]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lookahead": (20, 10)}, r"lookahead=\[20, 10\] are no ascending numbers of tokens"),
        ({"lookahead": ()}, r"lookahead=\[\] are no ascending"),
        ({"growth": 0}, "growth=0 makes nothing"),
        ({"second": 0.0}, "second=0.0 is no share"),
        ({"gap": 1.5}, "gap=1.5 is no share"),
        ({"distance": 2}, "distance=2 is no share"),
    ],
)
def test_settings_that_say_nothing_are_refused(settings: dict, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        LookaheadTree(**settings)
