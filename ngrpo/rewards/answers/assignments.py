r"""Values of several names: ``n = 7, k = 2``, ``(n, k) = (7, 2)``, and several such solutions."""

from dataclasses import dataclass, replace

from ngrpo.rewards.answers.collections import Ordered, Unordered
from ngrpo.rewards.answers.names import components, in_order
from ngrpo.rewards.answers.reading import Answer, equal


@dataclass(frozen=True)
class Assignment:
    """A value for each of several names, in no order."""

    values: tuple[tuple[str, Answer], ...]

    def equals(self, other: "Assignment") -> bool:
        """The same names with equal values."""
        first, second = dict(self.values), dict(other.values)
        return first.keys() == second.keys() and all(equal(first[name], second[name]) for name in first)


def assigned(items: tuple[Answer, ...]) -> Answer | None:
    """Read named values together: as an assignment, and as the tuple and the list of the values.

    Several solutions for the same names are a list of such answers. Returns None if some item has no name, or names
    occur in no such pattern. Indices may number the solutions: ``x_1 = 1, y_1 = 2; x_2 = 3, y_2 = 4``.
    """
    names = [item.name for item in items if item.name is not None]
    unnumbered = [name.split("_")[0] for name in names]
    if len(names) == len(set(names)) > len(set(unnumbered)) > 1:
        names, items = unnumbered, tuple(replace(item, name=item.name and item.name.split("_")[0]) for item in items)
    size = len(set(names))
    if len(names) < len(items) or size < 2 or len(items) % size:
        return None
    solutions = [items[start : start + size] for start in range(0, len(items), size)]
    if any({item.name for item in solution} != set(names) for solution in solutions):
        return None
    answers = [_one(solution) for solution in solutions]
    return answers[0] if len(answers) == 1 else Answer("", (Unordered(tuple(answers), is_set=False),), answers[0].name)


def with_components(answer: Answer) -> Answer:
    """Add to an answer for a tuple of names, ``(n, k) = (7, 2)``, what it says about each of them."""
    names = components(answer.name)
    values = next((r.items for r in answer.readings if isinstance(r, Ordered) and len(r.items) == len(names)), None)
    if not names or values is None:
        return answer
    return replace(answer, relations=(*answer.relations, Assignment(tuple(zip(names, values, strict=True)))))


def _one(items: tuple[Answer, ...]) -> Answer:
    names = tuple(str(item.name) for item in items)
    values = tuple(replace(item, name=None, relations=()) for item in items)
    order = in_order(names)
    readings = (Ordered(tuple(values[i] for i in order)), Unordered(values, is_set=False, in_order=True))
    name = f"({','.join(names[i] for i in order)})"
    return Answer("", readings, name, (Assignment(tuple(zip(names, values, strict=True))),))
