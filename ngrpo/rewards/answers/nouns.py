r"""Nouns behind a number: what is counted, ``12 apples`` or ``20 different ways``, and words that are no such thing.

A noun phrase is told by its structure: its head is a plural, unless the number is a fraction or one, and none of its
words belongs to the small closed classes that would change the number or go on with another one: numerals, words of
arithmetic, negations, conjunctions, comparisons, auxiliaries and pronouns. ``12 squared``, ``12 tenths``, ``12 minus
one`` and ``12 apples or thirteen`` count nothing.
"""

import re

from sympy import Rational

_IRREGULAR = frozenset(
    ["people", "children", "men", "women", "feet", "teeth", "mice", "geese", "fish", "sheep", "deer", "dice", "cattle"]
    + ["vertices", "indices", "matrices", "radii", "foci", "loci", "maxima", "minima", "data", "salmon", "moose"]
)
_PREPOSITIONS = frozenset(["of", "in", "per", "each", "for", "on", "from", "with", "to", "a", "an", "every"])
_ADJUNCTS = frozenset(
    ["long", "wide", "high", "tall", "deep", "old", "away", "left", "remaining", "apart", "thick"]
    + ["total", "altogether", "each", "apiece", "approx", "approximately", "exactly", "only", "overall"]
)
_ALONE = frozenset(["total", "altogether", "each", "apiece", "approx", "approximately", "exactly", "overall"])
_TEENS = "(?:thir|four|fif|six|seven|eigh|nine)teen"
_NUMERAL = re.compile(
    rf"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|{_TEENS}|hundred|thousand|dozen"
    r"|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|[mbtr]{1,2}illion|half|halve|quarter|third"
    rf"|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|{_TEENS}|[a-z]+tie|hundred|thousand|[a-z]+illion)th)(?:e?s)?"
)
_CHANGING = frozenset(
    re.findall(
        r"\w+",
        """
        and or nor but if is are was were be been being am not no non none nothing never neither either both
        than as minus plus times divided multiplied multiply divide added subtracted by into mod modulo
        squared cubed factorial factorials doubled tripled halved twice thrice reciprocal reciprocals inverse
        inverses negative negatives negated opposite opposites log choose over under above below less at about
        around almost nearly roughly too very except without excluding wait actually rather instead maybe
        perhaps probably possibly hmm sorry oops correction wrong incorrect false untrue when where while
        until unless whenever otherwise then else so because since though although however thus hence
        therefore this that these those it its he she they we you i me my what which who whose how why should
        would could can cannot may might must will shall has have had do does did equals equal exceeds always
        sometimes nowadays besides across versus vs alias minuses pluses tens ones
        """,
    )
)
_WORD = re.compile(r"[A-Za-z]+(?:[-'][A-Za-z]+)*")


def core(phrase: str) -> str | None:
    """What a phrase behind a number counts, without what stands behind it: "red balls" of "red balls in the bag".

    Returns:
        The words, none for a phrase such as "of the cake" or "in total"; None if the phrase changes the number.
    """
    words = phrase.strip(" .").removeprefix("(").removesuffix(")").split()
    if not words or _changes(words):
        return None
    place = next((i for i, word in enumerate(words) if word in _PREPOSITIONS), len(words))
    front = words[:place]
    while front and front[-1] in _ADJUNCTS:
        front.pop()
    said = front or place < len(words) - 1 or words[-1] in _ALONE
    return " ".join(front) if said else None


def is_counted(noun: str, count: Rational | None) -> bool:
    """Whether words can be what there are so many of.

    Args:
        noun: the words that `core` returns, at least one.
        count: the number in front of them; None for one that is not written in digits, such as a root.
    """
    last = noun.split()[-1]
    single = count is not None and (abs(count) <= 1 or count.q != 1)
    return is_plural(last.lower()) or (single and len(last) > 2)


def is_plural(word: str) -> bool:
    """Whether a word looks like a plural."""
    last = word.split("-")[-1]
    return last in _IRREGULAR or (
        len(last) > 2 and last.endswith("s") and not last.endswith(("ss", "us", "is", "wards"))
    )


def _changes(words: list[str]) -> bool:
    if words == ["times"]:
        return False
    parts = [part for word in words for part in word.lower().split("-")]
    return not all(_WORD.fullmatch(word) for word in words) or any(
        part in _CHANGING or part.endswith("n't") or _NUMERAL.fullmatch(part) for part in parts
    )
