"""What reaches the terminal."""

import logging
import re

import pytest

from ngrpo.entrypoints.console import ConsoleHandler


def test_a_record_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]):
    record = logging.LogRecord("a", logging.INFO, "", 0, "wrote [bold]%s", ("\x1b]0;title\x07\x1b[2J",), None)
    ConsoleHandler().emit(record)
    when, _, said = capsys.readouterr().out.partition("  ")
    assert re.fullmatch(r"\d\d:\d\d:\d\d", when)
    assert said == "wrote [bold]\u241b]0;title\u2407\u241b[2J\n"
