r"""The one notation for what is written in many: ``\dfrac12``, ``½`` and ``\tfrac{1}{2}`` become ``\frac{1}{2}``."""

import re
from collections.abc import Callable

from ngrpo.rewards.answers.characters import to_latex
from ngrpo.rewards.answers.rationals import rational
from ngrpo.rewards.answers.scan import enclosed, group_end, split

_FUNCTIONS = "arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|ln|log|exp"
_COMMANDS = (
    # Typesetting without meaning.
    (r"\\(?:left|right)\s*\.", ""),
    (r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\s*", ""),
    (r"\\(?:displaystyle|textstyle|limits|nolimits|rm|bf|tiny|small|large|Large|LARGE|huge|Huge)(?![A-Za-z])", ""),
    (r"\\tag\*?\s*\{[^{}]*\}", ""),
    (r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm)\s*\]|\\cr(?![A-Za-z])", r"\\\\"),
    # Digit groups, before the thin spaces in them are lost.
    (r"(?<=\d)(?:,\s*\\!\s*|\{,\}(?:\\!)?|\\text\{,\}|\\,|\\!|')(?=\d{3}(?!\d))", ""),
    (r"(?<=[^\s,;])\s*\\q?quad\s*(?=[A-Za-z](?:_\w)?\s*=)", ", "),
    (r":=", "="),
    (r"(?<!\\)\\[,;:!> ]|~|\\q?quad(?![A-Za-z])", " "),
    (r"\\(math(?:bb|bf|rm|it|cal|sf))\s+([A-Za-z\d])", r"\\\1{\2}"),
    (r"\\(?:text|math)(?:bf|it|rm|sf|tt|up|normal)\s*\{|\\(?:text|mbox|hbox|unit|operatorname\*?)\s*\{", r"\\text{"),
    (r"(?<=[\d+\-)}])\s*\\text\{\s*i\s*\}", " i"),
    (r"\\(?:underline|underbrace|boldsymbol|bm|pmb|boxed|fbox|ensuremath|mathbb(?=\{\d))\s*(?=\{)", ""),
    (r"\\(?:text)?color\s*\{\w+\}", ""),
    (r"\{\s*\}(?=\s*[\^_])", ""),
    (r"(?<![A-Za-z\d}\]^_\\])\{\s*(\d[\d.]*)\s*\}(?=\s*[\^_])", r"\1"),
    # Synonyms.
    (r"\\textdollar(?![A-Za-z])|\\text\{\s*\\\$\s*\}|(?<![A-Za-z])US ?\\\$", r"\\$"),
    (r"(?<=\d)\{,\}(?=\d)", "."),
    (r"\\pounds(?![A-Za-z])", "£"),
    (r"\\euro(?![A-Za-z])", "€"),
    (r"\\imath(?![A-Za-z])", "i"),
    (r"\\bigcup(?![A-Za-z])|(?<=[)\]}]) ?U ?(?=[(\[\\])", r"\\cup "),
    (r"(?<=\d)\.(\d*)\\bar(?![A-Za-z])", r".\1\\overline"),
    (r"(\.\d*)\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?", r"\1\\overline{\2\3\4}"),
    (r"\\&(?= )", r"\\text{ and }"),
    (r"(?<=[\d)\]}])\s*(or|and)\s*(?=[\d(\[\\{-])", r" \1 "),
    (r"\\(?:[dtcs]|nice)frac(?![A-Za-z])", r"\\frac"),
    (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
    (r"\{([^{}]*)\\choose(?![A-Za-z])([^{}]*)\}", r"\\binom{\1}{\2}"),
    (r"^([^{}]*)\\choose(?![A-Za-z])([^{}]*)$", r"\\binom{\1}{\2}"),
    (r"(?<==)\s*\{([^{}]*)\}$", r"\1"),
    (r"\\lg(?![A-Za-z])", r"\\log_{10}"),
    (r"\\log\s*_\s*(?:\{\s*e\s*\}|e)(?![A-Za-z])", r"\\ln "),
    (r"\{\s*([-+])\s*\}(?=\s*[\d\\A-Za-z(])", r"\1"),
    (r"\\text\{\s*([,;])\s*\}", r"\1 "),
    (r"\\pmod\s*(\d+|[A-Za-z])(?![A-Za-z])|\(\s*(?:\\text\{\s*mod\s*\}|\\?mod)\s*(\d+)\s*\)", r"\\pmod{\1\2}"),
    (r"\\(?:leqslant|leqq|leq)(?![A-Za-z])|<=", r"\\le "),
    (r"\\(?:geqslant|geqq|geq)(?![A-Za-z])|>=", r"\\ge "),
    (r"\\neq(?![A-Za-z])|!=|\\not\s*=|=\s*\\not(?![A-Za-z])", r"\\ne "),
    (r"\\not\s*\\in(?![A-Za-z])", r"\\notin "),
    (r"\\(?:simeq|doteq|approxeq|thickapprox)(?![A-Za-z])|~=|=~", r"\\approx "),
    (r"\\lt(?![A-Za-z])", "<"),
    (r"\\gt(?![A-Za-z])", ">"),
    (r"\\lparen(?![A-Za-z])", "("),
    (r"\\rparen(?![A-Za-z])", ")"),
    (r"\\lbrace(?![A-Za-z])", r"\\{"),
    (r"\\rbrace(?![A-Za-z])", r"\\}"),
    (r"\\lbrack(?![A-Za-z])", "["),
    (r"\\rbrack(?![A-Za-z])", "]"),
    (r"\\varnothing(?![A-Za-z])", r"\\emptyset"),
    (r"\\backslash(?![A-Za-z])", r"\\setminus"),
    (r"\\infin(?![A-Za-z])", r"\\infty"),
    (r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\})|\\degrees?(?![A-Za-z])|(?<=\d)\^o(?![A-Za-z])", r"^\\circ"),
    (r"\\(?:lvert|rvert|vert)(?![A-Za-z])", "|"),
    # Plain text for mathematics.
    (r"(?<![\\A-Za-z])(?:infinity|inf|oo)(?![A-Za-z])", r"\\infty"),
    (r"(?<![\\A-Za-z])(pi|sqrt|theta|alpha|beta)(?![A-Za-z])", r"\\\1"),
    (rf"(?<![\\A-Za-z{{])({_FUNCTIONS})(?![A-Za-z])", r"\\\1"),
    (rf"\\text\{{\s*({_FUNCTIONS}|infty)\s*\}}", r"\\\1"),
    (r"\\text\{\s*(\\infty|\^\\circ)\s*\}", r"\1"),
    (r"\*\*", "^"),
    (r"(?<!\\)\*", r"\\cdot "),
    (r"(?<=\d)[eE]([+-]?\d+)(?![\d.A-Za-z])", r"\\cdot 10^{\1}"),
    (r"(?<=\d)\s*x\s*(?=10\s*\^)", r"\\times "),
    (r"\\phantom\s*(?:\{[^{}]*\}|.)", ""),
    (r"(?<=\d) ?(?:: ?|\{:\})(?=\d)", ":"),
    (r"\s+", " "),
)
_REWRITES = tuple((re.compile(pattern), replacement) for pattern, replacement in _COMMANDS)
_DOTS = re.compile(r"\\[lc]?dots[cbmio]?(?![A-Za-z])|\.{3,}")
_RECURRING = re.compile(r"(\.\d*?)(\d+?)\2{2,} ?\\dots(?![A-Za-z])")  # 0.333...
_ROUNDED = re.compile(r"(\.\d+) ?\\dots ?$")
_LINES = re.compile(r"\\begin\{(aligned|align\*?|gathered|cases)\}(.*?)\\end\{\1\}", re.DOTALL)
_ANY_INTEGER = re.compile(
    r"""(?<=[^\s,])(?:
            (?:,|\ )\s*(?:\\text\{\s*(?:where|for|with)?\s*\}\s*)?[a-z]\s*\\in\s*\\mathbb\{Z\}
          | ,?\ ?\\text\{\s*,?\s*(?:where|for|with)\s+(?:any|all|some|every)?\s*integers?\s*\}\s*[a-z]
          | ,?\ ?\\text\{\s*,?\s*where\s*\}\s*[a-z]\s*\\text\{\s*(?:is\s+)?an?y?\s+integer\s*\}
        )$""",
    re.VERBOSE,
)
_END = re.compile(r"(?<!\\)[\s.,;:]+$|\\$")
_GENERIC = re.compile(r"(?<=[^\s{]) ?\\text ?\{ ?units? ?\}$|(?<=[\d})\]]) units?$")
_INTERVAL = re.compile(r"([(\[\]])([^()\[\]]*[,;][^()\[\]]*)([)\[\]])")
_COMMA = re.compile("[,;]")
_BRACED = re.compile(r"(?P<before>^|[=,;(<>]|\\(?:in|cup|cap|setminus)(?![A-Za-z]))\s*\{(?P<items>[^{}]*[,;][^{}]*)\}")
_DOLLAR = re.compile(r"(?<!\\)\$")
_ARGUMENT = re.compile(r"\s*(?:\\[A-Za-z]+|[^\s{}\\^_])")
_PAIRS = (("{", "}"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("*", "*"), ('"', '"'), ("'", "'"), ("`", "`"))


def tidy(text: str) -> str:
    """Return the text in one notation: one line, no typesetting, arguments in braces, no closing punctuation."""
    text = _RECURRING.sub(r"\1\\overline{\2}", _DOTS.sub(r"\\dots ", to_latex(text))).strip()
    if len(_DOLLAR.findall(text)) == 1:  # a price and not the sign of mathematics
        text = _DOLLAR.sub(r"\\$", text)
    text = _BRACED.sub(_as_set, text)
    text = _LINES.sub(_listed, _END.sub("", _unwrapped(_END.sub("", _DOLLAR.sub("", text).strip()))))
    text = _ROUNDED.sub(r"\1", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _GENERIC.sub("", _END.sub("", _ANY_INTEGER.sub("", text.strip())))
    for command in (r"\frac", r"\binom"):
        text = _each(command, text, lambda rest: _braced(rest, 2))
    text = _each(r"\sqrt", text, _root)
    text = _each("^", text, _exponent)
    return _INTERVAL.sub(_inward, _unwrapped(text))


def squeeze(text: str) -> str:
    """Return the text to compare literally: no braces around single characters, spaces only between words or digits."""
    tight = re.sub(r"(?<!\w) | (?!\w)|(?<=\\equiv) | (?=\\)", "", text)
    return re.sub(r"\{(\w)\}", r"\1", tight)


def _unwrapped(text: str) -> str:
    for opening, closing in _PAIRS:
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening):
            inner = enclosed(text, opening, closing) if opening == "{" else text[len(opening) : -len(closing)]
            text = _unwrapped(inner.strip()) if inner else text
    return text


def _listed(match: re.Match[str]) -> str:
    """Write lines below each other as a list, unless they are the cases of a function."""
    if match[1] == "cases" and "&" in match[2]:
        return match[0]
    lines = [line.replace("&", "").strip(" ,") for line in match[2].split(r"\\")]
    return ", ".join(filter(None, lines))


def _as_set(match: re.Match[str]) -> str:
    r"""Write ``{1,2}`` as ``\{1,2\}``, unless the braces hold one thing: a number, ``{1,234}``, or ``{(0,1]}``."""
    items = match["items"]
    single = rational(items) is not None or len(split(items, _COMMA)[0]) == 1
    return match[0] if single else rf"{match['before']}\{{{items}\}}"


def _inward(match: re.Match[str]) -> str:
    """Write ``]0,1[`` as ``(0,1)``, if it is all of the text."""
    if match.span() != (0, len(match.string)):
        return match[0]
    return match[1].replace("]", "(") + match[2] + match[3].replace("[", ")")


def _each(command: str, text: str, rewrite: Callable[[str], str]) -> str:
    """Rewrite what follows each occurrence of a command, from the last to the first."""
    head, *parts = text.split(command)
    tail = ""
    for part in reversed(parts):
        tail = command + rewrite(part + tail)
    return head + tail


def _braced(rest: str, count: int) -> str:
    """Put the next ``count`` arguments into braces: ``12`` gives ``{1}{2}``, and ``{1}2`` too."""
    if count == 0:
        return rest
    rest = rest.lstrip()
    if rest.startswith("{"):
        end = group_end(rest, 0)
        return rest[:end] + _braced(rest[end:], count - 1)
    match = _ARGUMENT.match(rest)
    if match is None:
        return rest
    return f"{{{match[0].strip()}}}" + _braced(rest[match.end() :], count - 1)


def _root(rest: str) -> str:
    rest = rest.lstrip()
    if rest.startswith("["):
        end = group_end(rest, 0)
        return rest[:end] + _root(rest[end:])
    if rest.startswith("("):
        end = group_end(rest, 0)
        return f"{{{rest[1 : end - 1]}}}{rest[end:]}"
    # As with exponents: nobody writes 16 so to say 1 times 6.
    match = re.match(r"\d+(?:\.\d+)?", rest)
    return f"{{{match[0]}}}{rest[match.end() :]}" if match else _braced(rest, 1)


def _exponent(rest: str) -> str:
    rest = rest.lstrip()
    if rest.startswith("("):
        end = group_end(rest, 0)
        return f"{{{rest[1 : end - 1]}}}{rest[end:]}"
    match = re.match(r"-?\d+(?:\.\d+)?", rest)
    # In LaTeX x^23 is x^2 times 3, but nobody writes an answer so: plain text means 23.
    return f"{{{match[0]}}}{rest[match.end() :]}" if match else rest
