"""The names of the built-in problem generators: word problems and countdown puzzles."""

from ngrpo.data.countdown.levels import read_countdown_path
from ngrpo.data.sources.countdown import CountdownSource
from ngrpo.data.sources.demo import DemoSource
from ngrpo.data.sources.endless import GeneratedSource
from ngrpo.data.word_problems.levels import Split, read_path


def generated_source(path: object, default: Split) -> GeneratedSource | None:
    """Returns the source that a path such as ``demo``, ``demo:2-6@validation`` or ``countdown`` names.

    Args:
        path: the path; None is returned for whatever names no generator.
        default: the split where it names none.

    Raises:
        SettingError: there are no such problems, or no such split.
    """
    if word_problems := read_path(path, default):
        return DemoSource(word_problems[1], word_problems[0])
    if countdown := read_countdown_path(path, default):
        return CountdownSource(countdown[1], countdown[0])
    return None


def generated_family(path: object) -> str | None:
    """Returns the name, without a split, of the problems that a path names; None where it names no generator."""
    found = read_path(path, "train") or read_countdown_path(path, "train")
    return None if found is None else found[0].name
