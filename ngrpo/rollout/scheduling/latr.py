"""Responses that grow side by side, and fork where two tokens are nearly as likely (LATR)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from ngrpo.errors import SettingError
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.tree import Branch, Response, Tree
from ngrpo.types.rollouts import StopReason


@dataclass(frozen=True)
class LookaheadTree(Scheduler):
    """One response grows by its likeliest tokens and forks off others; forks that soon read alike are given up.

        fork at o_t: p(second) > second and p(first) - p(second) < gap      fork: o_t = second, response: o_t = first
        kept r tokens later: edit distance(own, parent's last r tokens) / r >= distance, for each r of ``lookahead``

    (LATR, arXiv 2510.24302, by its released code; m = 2.) All responses of a tree, forks too, grow at once by their
    likeliest tokens, and fork while there are fewer than G; what forked off a fork that is given up goes with it. The
    tree has grown when G responses have passed their last comparison, or all have ended, or after ``growth`` tokens.
    From there on everything is drawn from the policy: the responses go on, and what is missing of G goes on from where
    the first one was then, or starts from the prompt if that one has ended. Tokens of what is given up count as
    generated.

    A tree is that of growth step by step, made in rounds: a round makes all the pieces that the next steps are known to
    need, and further forks as if the unknown ones would not fork themselves. Pieces end at comparisons, so that little
    is made in vain.

    First and second are not drawn. As in the released code, they are trained on like any other token, with their
    ordinary log-probs. It differs in these points:

    - p is the model's own there; here it is at the sampling temperature, of the support where sampling is truncated;
    - a position that a strategy mixes is the strategy's, and forks if its token is the likeliest;
    - the growth of a whole batch ends at once there, when nearly all of its responses are there;
    - a share of the groups, falling as training goes on, are trees; here all are;
    - for mathematics it compares by matching suffixes and ROUGE-L.

    The copies of its code that were read ask for a gap of more than 0.15, which leaves the closest pairs out; here it
    is less.

    Attributes:
        second: tau_abs. The scripts: 0.25, for mathematics 0.15.
        gap: tau_rel. The scripts: 0.15, for mathematics 0.25.
        lookahead: r, in tokens, ascending.
        distance: smallest share of r that makes a fork differ.
        growth: most tokens of a response while its tree grows, given ones not counted. The scripts: 512 of 1024, for
            mathematics 1024 of 8192.
    """

    reads_distributions: ClassVar[bool] = True
    second: float = 0.25
    gap: float = 0.15
    lookahead: Sequence[int] = (20, 30, 50)
    distance: float = 0.4
    growth: int = 512

    def __post_init__(self) -> None:
        steps = list(self.lookahead)
        if not steps or steps[0] < 1 or steps != sorted(set(steps)):
            raise SettingError(f"rollout.scheduler.lookahead={steps} are no ascending numbers of tokens; give such.")
        if self.growth < 1:
            raise SettingError(f"rollout.scheduler.growth={self.growth} makes nothing; choose 1 or more.")
        for name in ("second", "gap", "distance"):
            if not 0 < getattr(self, name) <= 1:
                raise SettingError(
                    f"rollout.scheduler.{name}={getattr(self, name)} is no share; choose a value in (0, 1]."
                )

    def branches(self, tree: Tree) -> Sequence[Branch]:
        """See `Scheduler`."""
        if not tree.missing:
            return []
        growth = Growth(self, tree)
        return growth.asked or [*growth.going_on(), *growth.further()]

    def given_up(self, tree: Tree) -> Collection[int]:
        """See `Scheduler`; before a tree has grown, none of its responses is sure to stay."""
        whole = [n for n, one in enumerate(tree.made) if one.whole and one.branch.likeliest]
        if not whole:
            return []
        growth = Growth(self, tree)
        kept = set() if growth.asked else growth.ended()
        return [n for n in whole if n not in kept]

    def places(self, one: Response) -> dict[int, int]:
        """Returns where a response forks: the second likeliest token by its index."""
        read = one.rollout.distributions
        assert read is not None
        first, second = read.log_probs.exp().unbind(-1)
        chosen = (second > self.second) & (first - second < self.gap) & (read.ids[:, 0] == one.rollout.response_ids)
        return dict(zip(chosen.nonzero()[:, 0].tolist(), read.ids[chosen, 1].tolist(), strict=True))


@dataclass(eq=False)
class Row:
    """A response while its tree grows.

    Attributes:
        parent: what it forked off; None for the first one.
        birth: index of its forced token; of the first one, that of its first token.
        pieces: the responses of the tree that it was made as, by number: each goes on from the one before.
    """

    parent: "Row | None"
    birth: int
    pieces: Sequence[int]

    @property
    def lineage(self) -> "Iterator[Row]":
        """Itself and all that it comes from."""
        row: Row | None = self
        while row is not None:
            yield row
            row = row.parent


class Growth:
    """The growth of a tree step by step, as far as what was made for it goes.

    Args:
        settings: the scheduler's.
        tree: what was made.

    Attributes:
        rows: alive at the end, in the order of their birth.
        asked: what must be made to go on; nothing when the tree has grown.
        stop: tokens of a response when the tree has grown.
    """

    def __init__(self, settings: LookaheadTree, tree: Tree) -> None:
        self._settings = settings
        self._tree = tree
        self._made = pieces_of_rows(tree)
        self._lengths = [one.rollout.length for one in tree.made]
        self._places: dict[int, Mapping[int, int]] = {}
        self._end = min(tree.given + settings.growth, tree.limit)
        self.rows: list[Row] = []
        self.asked: list[Branch] = []
        self.stop = self._grow()

    def going_on(self) -> list[Branch]:
        """Returns the branches of the rows that have not ended."""
        return [Branch(row.pieces[-1], self.stop) for row in self.rows if not self._ended(row, self.stop)]

    def further(self) -> list[Branch]:
        """Returns the branches that are missing of G."""
        first = self.rows[0]
        one = Branch() if self._ended(first, self.stop) else Branch(first.pieces[-1], self.stop)
        return [one] * (self._tree.size - len(self.rows))

    def ended(self) -> set[int]:
        """Returns the numbers of the rows that ended while the tree grew."""
        return {row.pieces[-1] for row in self.rows if self._ended(row, self.stop)}

    def _grow(self) -> int:
        given = self._tree.given
        self._begin(None, given, Branch(until=given + self._settings.lookahead[-1]))
        for step in range(given, self._end):
            for row in self.rows:
                self._lengthen(row, step)
            growing = [row for row in self.rows if row.pieces and step < self._length(row)]
            if not growing:
                return step
            for row in growing:
                forced = self._places_of(row).get(step)
                if forced is not None and len(self.rows) < self._tree.size:
                    until = self._compared_next(step, step)
                    self._begin(row, step, Branch(row.pieces[-1], step, until, forced))
            self._give_up(step + 1)
            if self._settled(step):
                return step + 1
        return self._end

    def _begin(self, parent: Row | None, birth: int, branch: Branch) -> None:
        """Adds a row, and asks for it if it was not made."""
        pieces = self._made.get((None if parent is None else parent.pieces[0], birth), ())
        self.rows.append(Row(parent, birth, pieces))
        if not pieces:
            self._ask(branch)

    def _lengthen(self, row: Row, step: int) -> None:
        """Asks for what follows where the row's last piece ends."""
        if row.pieces and step == self._length(row) and not self._ended(row, step):
            self._ask(Branch(row.pieces[-1], step, self._compared_next(row.birth, step)))

    def _ask(self, branch: Branch) -> None:
        assert branch.until is not None
        self.asked.append(replace(branch, until=min(branch.until, self._end), likeliest=True))

    def _compared_next(self, birth: int, length: int) -> int:
        """Returns the length at which a row of so many tokens is compared next; after that it grows in large pieces."""
        steps = self._settings.lookahead
        return next((birth + r for r in steps if birth + r > length), length + steps[-1])

    def _give_up(self, length: int) -> None:
        """Removes rows that read like their parents once they have so many tokens, and what forked off them."""
        compared = [row for row in self.rows if length - row.birth in self._settings.lookahead]
        gone = {row for row in compared if row.parent is not None and self._alike(row, row.parent, length)}
        if gone:
            self.rows = [row for row in self.rows if gone.isdisjoint(row.lineage)]

    def _alike(self, row: Row, parent: Row, length: int) -> bool:
        """Says whether two rows read alike since the birth of one; not if one of them has ended, or is not made yet."""
        own, other = (self._tokens(one, row.birth, length) for one in (row, parent))
        return bool(own and other) and not differs(own, other, self._settings.distance)

    def _tokens(self, row: Row, start: int, end: int) -> tuple[int, ...]:
        """Returns a row's tokens from ``start`` to ``end``; none of a row that has a stop token by then."""
        if not row.pieces:
            return ()
        made = self._tree.made[row.pieces[-1]].rollout
        stopped = made.stop_reason is StopReason.STOP and made.length == end
        return () if stopped or made.length < end else tuple(made.response_ids[start:end].tolist())

    def _settled(self, step: int) -> bool:
        full = len(self.rows) == self._tree.size
        return full and all(row.birth + self._settings.lookahead[-1] < step for row in self.rows)

    def _length(self, row: Row) -> int:
        return self._lengths[row.pieces[-1]]

    def _places_of(self, row: Row) -> Mapping[int, int]:
        """Returns where a row forks, as far as it was made; looked up when a step needs it, since pieces are many."""
        last = row.pieces[-1]
        if last not in self._places:
            self._places[last] = self._settings.places(self._tree.made[last])
        return self._places[last]

    def _ended(self, row: Row, length: int) -> bool:
        """Says whether a row has ended with so many tokens, or fewer."""
        return self._tree.made[row.pieces[-1]].whole and self._length(row) <= length


def pieces_of_rows(tree: Tree) -> Mapping[tuple[int | None, int], Sequence[int]]:
    """Returns the pieces of each row of a growing tree, by the first piece of what it forked off, and its birth."""
    found: dict[tuple[int | None, int], list[int]] = {}
    row_of: dict[int, tuple[int | None, int]] = {}
    for number, one in enumerate(tree.made):
        branch = one.branch
        if not branch.likeliest:
            continue
        if branch.parent is None:
            row_of[number] = None, tree.given
        elif branch.forced_token is None:
            row_of[number] = row_of[branch.parent]
        else:
            row_of[number] = found[row_of[branch.parent]][0], branch.at
        found.setdefault(row_of[number], []).append(number)
    return found


@lru_cache(maxsize=4096)
def differs(own: tuple[int, ...], other: tuple[int, ...], distance: float) -> bool:
    """Says whether the edit distance of r tokens to others is at least ``distance`` r."""
    return edit_distance(own, other) >= distance * len(own)


def edit_distance(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns how many insertions, deletions and replacements of a token make one sequence the other (Levenshtein)."""
    before = list(range(len(other) + 1))
    for row, token in enumerate(one, start=1):
        now = [row]
        for column, compared in enumerate(other, start=1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (token != compared)))
        before = now
    return before[-1]
