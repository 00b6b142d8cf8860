"""Growth of trees: branches, keys, paths and counts, with an engine whose tokens are written out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from made_rollouts import rollout

from ngrpo.errors import SettingError
from ngrpo.exploration.random import request_key
from ngrpo.rollout.scheduling.at_positions import ForkAtEntropy, ForkAtMixtures, ForkAtSurprise
from ngrpo.rollout.scheduling.at_share import ForkAtShare
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.growth import GrowingTree, grow
from ngrpo.rollout.scheduling.independent import IndependentSamples
from ngrpo.rollout.scheduling.latr import LookaheadTree
from ngrpo.rollout.scheduling.segments import ForkAtSegments
from ngrpo.rollout.scheduling.tree import Branch, Tree
from ngrpo.types.distributions import Distributions
from ngrpo.types.paths import distinct_tokens, shares
from ngrpo.types.rollouts import Prefix, Request, Rollout, StopReason

LIMIT, STOP = 24, 3
SCHEDULERS: list[Scheduler] = [
    IndependentSamples(),
    ForkAtShare(),
    ForkAtShare(branching=2, shares=(0.25, 0.5, 0.9)),
    ForkAtShare(branching=3, shares=(0.01,)),
    ForkAtSurprise(branching=3),
    ForkAtSurprise(branching=8, within=1.0),
    ForkAtMixtures(branching=4),
    ForkAtSegments(segment=4, branching=2, first=2),
    ForkAtSegments(segment=7, branching=3, first=1),
    ForkAtSegments(segment=1, branching=2, first=9),
    ForkAtEntropy(branching=3, within=0.7),
    LookaheadTree(lookahead=(3, 5), growth=14),
    LookaheadTree(second=0.1, gap=0.6, lookahead=(2,), distance=1.0, growth=30),
]
each_scheduler = pytest.mark.parametrize("scheduler", SCHEDULERS, ids=str)


class Written:
    """An engine whose token at an index is drawn from the request's key and the index, as its mixtures are.

    Each is the likeliest, with a second one of a half to nothing of its probability.
    """

    def __init__(self, stop: float = 0.08) -> None:
        self.calls: list[list[Request]] = []
        self.stop = stop

    def __call__(self, requests: list[Request]) -> list[Rollout]:
        self.calls.append(requests)
        return [self.one(request) for request in requests]

    def one(self, request: Request) -> Rollout:
        limit = request.limit(LIMIT)
        prefix = request.prefix or Prefix((0,))
        ids = list(prefix.ids) if request.prefix else []
        log_probs = [0.0] * len(ids)
        prompt = len(request.prompt_ids)
        mixed = (
            {}
            if prefix.mixture is None
            else {
                int(at): dict(zip(row.tolist(), w.tolist(), strict=True))
                for at, row, w in zip(prefix.mixture.positions, *prefix.mixture.record[:2], strict=True)
            }
        )
        while len(ids) < limit and (not ids or ids[-1] != STOP):
            draw = request_key(request.key, len(ids)) / 2**63
            log_probs.append(-draw)
            ids.append(STOP if draw < self.stop else 10 + int(1000 * draw))
            if request.forced_token is not None and len(ids) == request.given + 1:
                ids[-1] = request.forced_token
            if 0.5 < draw < 0.6:
                mixed[prompt + len(ids) - 1] = {ids[-1]: 0.5, 7: 0.5}
        reason = StopReason.STOP if ids[-1] == STOP else StopReason.LENGTH
        made = rollout(request.prompt_ids, ids, mixed, stop=reason, key=request.key)
        made = replace(made, log_probs=torch.tensor(log_probs), prefix_length=request.given)
        second = 0.5 + made.log_probs / 2
        pairs = torch.stack((1 - second, second), -1)
        ids = torch.stack((made.response_ids, made.response_ids + 1), -1)
        return replace(made, distributions=Distributions(-made.log_probs, ids.int(), pairs.log()))


def roots(size: int, prompt: int = 0, given: Prefix | None = None) -> list[Request]:
    return [Request((1, 2, 3), request_key(0, prompt, sample), prefix=given) for sample in range(size)]


def whole(request: Request) -> Rollout:
    return Written().one(request)


@each_scheduler
@pytest.mark.parametrize("size", [1, 2, 5, 8, 13])
def test_every_tree_has_its_whole_responses(scheduler: Scheduler, size: int) -> None:
    """What they have in common is said by their paths: equal nodes are equal tokens, log-probs and mixtures."""
    for number in range(12):
        (tree,) = grow(scheduler, [roots(size, number)], LIMIT, Written())
        leaves = tree.leaves
        assert len(leaves) == size == len({leaf.key for leaf in leaves})
        assert all(leaf.stop_reason is StopReason.STOP or leaf.length == LIMIT for leaf in leaves)
        assert all(leaf.response_ids[-1] == STOP or leaf.length == LIMIT for leaf in leaves)
        assert all(leaf.prefix_length == 0 for leaf in leaves)
        assert all(leaf.log_probs.all() for leaf in leaves)
        nodes: dict[int, tuple] = {}
        for leaf in leaves:
            if leaf.path is None:
                continue
            ends = (*leaf.path.starts[1:], leaf.length)
            for node, start, end in zip(leaf.path.nodes, leaf.path.starts, ends, strict=True):
                at = (leaf.mixture.positions >= 3 + start) & (leaf.mixture.positions < 3 + end)
                parts = (leaf.response_ids[start:end], leaf.log_probs[start:end], leaf.mixture.record.ids[at])
                content = (start, *(part.tolist() for part in parts))
                assert nodes.setdefault(node, content) == content


def tokens_by_hand(leaves: Sequence[Rollout]) -> int:
    """No two draws are equal, and so no two log-probs of different tokens."""
    return len(torch.cat([leaf.log_probs.double() for leaf in leaves]).unique())


@each_scheduler
def test_common_tokens_are_counted_once(scheduler: Scheduler) -> None:
    for number in range(12):
        engine = Written()
        (tree,) = grow(scheduler, [roots(8, number)], LIMIT, engine)
        leaves = tree.leaves
        paths, ends = [leaf.path for leaf in leaves], [leaf.length for leaf in leaves]
        distinct = distinct_tokens(paths, [0] * 8, ends)
        made = sum(
            len(engine.one(request).response_ids) - request.given for requests in engine.calls for request in requests
        )
        assert distinct == tokens_by_hand(leaves)
        assert tree.pruned_tokens == made - distinct
        assert tree.pruned_tokens == 0 or isinstance(scheduler, LookaheadTree)
        weights = [
            torch.ones(end) if w is None else w for w, end in zip(shares(paths, ends, [True] * 8), ends, strict=True)
        ]
        assert [len(weight) for weight in weights] == ends
        assert float(sum(weight.sum() for weight in weights)) == pytest.approx(distinct, rel=1e-5)


@each_scheduler
def test_a_tree_is_the_same_beside_any_others(scheduler: Scheduler) -> None:
    together = grow(scheduler, [roots(6, number) for number in range(5)], LIMIT, Written())
    for number, tree in enumerate(together):
        (alone,) = grow(scheduler, [roots(6, number)], LIMIT, Written())
        for one, other in zip(tree.leaves, alone.leaves, strict=True):
            assert (one.key, one.path) == (other.key, other.path)
            assert one.response_ids.equal(other.response_ids)


def test_independent_samples_are_the_requests_as_they_were() -> None:
    engine = Written()
    trees = grow(IndependentSamples(), [roots(4, number) for number in range(3)], LIMIT, engine)
    assert engine.calls == [[one for number in range(3) for one in roots(4, number)]]
    assert all(leaf.path is None for tree in trees for leaf in tree.leaves)


def test_segments_are_the_policys_own_responses() -> None:
    """What goes on keeps its key: a response of the first root is the one without segments."""
    for number in range(10):
        (tree,) = grow(ForkAtSegments(segment=3, branching=2, first=2), [roots(8, number)], LIMIT, Written())
        own = {leaf.key: leaf for leaf in tree.leaves}
        for root in roots(8, number)[:2]:
            assert own[root.key].response_ids.equal(whole(root).response_ids)


def test_a_fork_goes_back_to_an_earlier_segment_when_all_have_ended() -> None:
    (tree,) = grow(ForkAtSegments(segment=2, branching=2, first=1), [roots(8, 1)], LIMIT, Written(stop=0.5))
    assert len(tree.leaves) == 8
    assert tree.tree.rounds > 3


def test_a_share_of_the_length_forks_there() -> None:
    (tree,) = grow(ForkAtShare(branching=4, shares=(0.5,)), [roots(8, 3)], LIMIT, Written(stop=0.0))
    paths = [leaf.path for leaf in tree.leaves]
    assert all(path is not None and path.starts == (0, 12) for path in paths)
    assert len({path.nodes[0] for path in paths if path}) == 2
    saved = 1 - distinct_tokens(paths, [0] * 8, [LIMIT] * 8) / (8 * LIMIT)
    assert saved == 0.375


def test_given_tokens_are_shared_by_all_and_counted_by_none() -> None:
    given = whole(roots(1, 40)[0]).cut(3)
    (tree,) = grow(ForkAtShare(branching=2), [roots(4, 0, given)], LIMIT, Written(stop=0.0))
    for leaf in tree.leaves:
        assert leaf.prefix_length == 3
        assert leaf.path is not None
        assert leaf.path.starts == (3, 13)
        assert leaf.generated_log_probs.all()
    assert distinct_tokens([leaf.path for leaf in tree.leaves], [3] * 4, [LIMIT] * 4) == 2 * 10 + 4 * 11


def test_surprise_entropy_and_mixtures_choose_their_positions() -> None:
    made = whole(roots(1, 8)[0])
    tree = GrowingTree(roots(4, 8), LIMIT, ForkAtSurprise())
    tree.add(tree.ask(), [made])
    half = round(0.5 * made.length)
    ranked = sorted(range(1, half + 1), key=lambda index: float(made.log_probs[index]))
    assert [branch for branch, _ in tree.ask()] == [Branch(0, at) for at in ranked[:3]]
    tree = GrowingTree(roots(4, 8), LIMIT, ForkAtEntropy(within=0.8))
    flat = Distributions(torch.arange(made.length) % 3.0, *made.distributions[1:])
    tree.add(tree.ask(), [replace(made, distributions=flat)])
    assert [branch for branch, _ in tree.ask()] == [Branch(0, at) for at in (2, 5, 8)]
    mixed = rollout((1, 2, 3), range(10, 20), {4: {7: 1.0}, 5: {7: 1.0}, 11: {7: 1.0}}, width=1)
    tree = GrowingTree(roots(4, 8), LIMIT, ForkAtMixtures())
    tree.add(tree.ask(), [mixed])
    # The first position at 4 is token 1; the one at 11 is behind the first half.
    assert [branch for branch, _ in tree.ask()] == [Branch(0, at) for at in (1, 2, 1)]


@dataclass(frozen=True)
class Asks(Scheduler):
    """Asks for what it is told, round by round."""

    rounds: Callable[[int], Sequence[Branch]]

    def branches(self, tree: Tree) -> Sequence[Branch]:
        return self.rounds(tree.rounds)


def refused(*rounds: Sequence[Branch]) -> str:
    with pytest.raises(SettingError) as found:
        grow(Asks(lambda number: [*rounds, []][number]), [roots(2)], LIMIT, Written(stop=0.0))
    return str(found.value)


def test_what_no_tree_can_grow_is_refused() -> None:
    ends = "rollout.scheduler=Asks asks for 0 branches in round 2, after 1 whole responses of 2; correct its branches."
    assert refused([Branch()]) == ends
    assert "asks for 3 whole responses of 2" in refused([Branch()] * 3)
    assert "asks for 1 branches in round 2, after 2 whole responses of 2" in refused([Branch()] * 2, [Branch()])
    assert "a branch of response 5 of 1" in refused([Branch()], [Branch(5, 2)])
    assert "at token 6 that ends at 6" in refused([Branch()], [Branch(0, 6, until=6)])
    assert "up to 23" in refused([Branch()], [Branch(0, 24)])
    assert "up to 6" in refused([Branch(until=6)], [Branch(0, 7)])
    assert "returns a tuple instead of a Branch" in refused([(0, 3)])  # type: ignore[list-item]


def test_one_that_never_finishes_a_response_is_refused() -> None:
    with pytest.raises(SettingError, match=r"asks for 1 branches in round 50, after 0 whole responses of 2"):
        grow(Asks(lambda number: [Branch(until=1)]), [roots(2)], LIMIT, Written(stop=0.0))


def test_what_nothing_goes_on_from_is_pruned_and_counted() -> None:
    first, second = [Branch(until=6), Branch(until=9)], [Branch(0, 6), Branch(0, 3)]
    (tree,) = grow(Asks(lambda number: [first, second, []][number]), [roots(2)], LIMIT, Written(stop=0.0))
    assert tree.pruned_tokens == 9
    assert [leaf.path.starts for leaf in tree.leaves if leaf.path] == [(0, 3), (0, 3)]
    assert tree.leaves[0].response_ids.equal(Written(stop=0.0).one(roots(2)[0]).response_ids)


def test_one_place_has_one_key_whichever_response_names_it() -> None:
    """A fork within what two responses have in common is one of their common ancestor's."""
    steps = [[Branch()], [Branch(0, 10)], [Branch(0, 4), Branch(1, 4)], []]
    (tree,) = grow(Asks(lambda number: steps[number]), [roots(4)], LIMIT, Written(stop=0.0))
    keys = [leaf.key for leaf in tree.leaves]
    root = roots(4)[0].key
    assert keys == [root, request_key(root, 10, 0), request_key(root, 4, 0), request_key(root, 4, 1)]
