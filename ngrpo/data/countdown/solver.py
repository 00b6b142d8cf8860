"""All solutions of a countdown puzzle, found by trying everything."""

from collections.abc import Iterator, Sequence

from ngrpo.rewards.answers.expression import Expression, Number, Operation


def solutions(numbers: Sequence[int], target: int) -> dict[str, Expression]:
    """Returns one expression for each form of solution; takes seconds for five numbers, for six much longer."""
    found = (one for one in _expressions([Number(number) for number in numbers]) if one.value == target)
    return {one.form: one for one in found}


def _expressions(parts: list[Expression]) -> Iterator[Expression]:
    if len(parts) == 1:
        yield parts[0]
        return
    for first in range(len(parts)):
        for second in range(len(parts)):
            if first != second:
                rest = [part for index, part in enumerate(parts) if index not in (first, second)]
                for sign in "+-*/" if first < second else "-/":
                    yield from _expressions([*rest, Operation(parts[first], sign, parts[second])])
