"""What other code's errors say, as part of a sentence."""

import pytest

from ngrpo.errors import first_line


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such file.\n  at line 3"), "no such file"),
        (ValueError("\n\n told late \n"), "told late"),
        (ValueError(), "ValueError"),
        (KeyError("a"), "'a'"),
    ],
)
def test_the_first_line_is_quoted(error: Exception, said: str) -> None:
    assert first_line(error) == said
