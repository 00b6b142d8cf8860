r"""Words that introduce an answer: ``The answer is 5``, ``\text{Total area} = 12``.

They are told by what they are made of: one of the nouns below, perhaps with adjectives in front and with "of" and
what it belongs to behind. Whatever else stands before a value, such as "not" or "anything but", changes what is said.
"""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOUNS = _words(
    """
    age amount angle answer answers area areas average base capacity case center change charge choice
    circumference coefficient constant coordinate coordinates cost count degree density depth derivative
    determinant diameter difference dimension discount discriminant distance domain earnings edge efficiency
    equation expectation expression factor force formula fraction frequency function gain gcd gcf gdp hcf
    height hypotenuse income increase inradius integer integers intercept interest intersection interval lcm
    length lengths letter limit loss margin mass matrix max maximum mean measure measures median midpoint min
    minimum minutes mode modulus money month name number numbers odds option order output pair pairs payment
    percent percentage perimeter period point points polynomial population position power pressure price
    probability product profit quantity quotient radius range rank rate ratio remainder result revenue root
    roots salary score sequence set side sides size slope solution solutions speed sum temperature term terms
    time total triple tuple value values variable variance vector velocity vertex vertices volume wage ways
    weight width work year years zero zeros days hours months people seconds students weeks
    """
)
_ADJECTIVES = _words(
    """
    the a an our my his her their its this that final correct right required requested desired resulting new
    original exact numerical simplified only smallest largest greatest least most lowest highest minimal
    maximal possible last first second third missing unknown common shaded combined overall expected best
    closest nearest shortest longest real positive negative whole prime surface remaining current actual
    approximate general particular complete full different distinct other inverse
    """
)
_OPENINGS = _words(
    """
    so thus hence therefore then and also finally we get have obtain find it is are there here was be will
    must can equals gives given by as follows ans let us conclude
    """
)
_BEHIND = _words("of for in to from between on at per with when that")
_CHANGING = _words(
    """
    not no non never neither nor none without except excluding excludes but unlike than wrong incorrect false
    untrue bad invalid mistaken erroneous error impossible rejected refused isnt arent cannot cant dont doesnt
    didnt wasnt wont opposite reciprocal minus plus half twice double triple squared cubed times exceeds or if
    unless maybe perhaps possibly either guess candidate candidates instead
    """
)
_BOUND = re.compile(r"\b(?:at (?:least|most)|up to|(?:no|not) (?:more|less|fewer))\b", re.IGNORECASE)
_FRONT = _NOUNS | _ADJECTIVES | _OPENINGS
_LEAD = re.compile(
    r"\\text ?\{(?P<marked>[^{}]*(?:\b(?:is|are|so|thus|hence|therefore)|:|=),? ?)\} ?(?=\S)"
    r"|(?P<plain>(?:[A-Za-z']+ )*(?:is:?|are:?|[A-Za-z']{3,}:)) ?(?=\S)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_PROPER = re.compile(r"[A-Z][A-Za-z]{0,2}|[A-Z][a-z]+(?: [A-Z][a-z]+)?|[a-z]{1,3}|[A-Z]{2,8}")


def without_lead(text: str) -> str | None:
    """What follows the words that introduce an answer; None if the text does not begin with such words."""
    lead = _LEAD.match(text)
    return text[lead.end() :].strip() if lead and introduces(lead["marked"] or lead["plain"]) else None


def introduces(phrase: str) -> bool:
    """Whether words in front of a value only say that the value follows, or of what it is the value."""
    words = _WORD.findall(re.sub(r"[:=]\\s*$", "", phrase).lower())
    plain = [word.removesuffix("'s") for word in words]
    if _BOUND.search(phrase) or any(word.replace("'", "") in _CHANGING or word.endswith("n't") for word in words):
        return False
    behind = next((place for place, word in enumerate(plain) if word in _BEHIND), len(plain))
    front = [word for word, written in zip(plain, words, strict=True) if not written.endswith("'s")][:behind]
    known = all(word in _FRONT for word in front)
    return known and (any(word in _NOUNS for word in front) or set(front) <= _OPENINGS)


def is_label(phrase: str) -> bool:
    """Whether words can stand left of an equals sign: what introduces a value, a short name, or somebody's name."""
    phrase = phrase.strip()
    if phrase.lower().replace("'", "") in _CHANGING:
        return False
    return _PROPER.fullmatch(phrase) is not None or introduces(phrase)
