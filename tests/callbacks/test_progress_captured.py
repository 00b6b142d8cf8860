"""The display of a training as it was captured: in terminals of several widths and kinds, and without one."""

import re
from pathlib import Path

import pytest
from forked import Scripts
from places import ROOT
from terminal import Terminal, lines_of

SCRIPT = str(ROOT / "tests/helpers/shown_run.py")
EVALUATION = "evaluation 4: mean@1 0.541 (+0.175)  pass@16 0.950 (+0.000)"
CLOCK = r"\d+:\d\d"
PLAIN = {"TERM": "xterm-256color", "COLORTERM": ""}


def drawn(scripts: Scripts, here: Path, *arguments: str, encoding: str = "utf-8", **more: str) -> bytes:
    """Returns what the run writes to a terminal of 80 columns."""
    terminal = Terminal(80)
    command = [SCRIPT, "--terminal", terminal.name, "--encoding", encoding, *arguments]
    done = scripts.run(command, here, environment=PLAIN | more)
    written = terminal.closed()
    assert done.status == 0, written.decode(errors="replace") + done.said
    return written


def piped(scripts: Scripts, here: Path, *arguments: str, **more: str) -> list[str]:
    """Returns what the run writes where there is no terminal."""
    done = scripts.run([SCRIPT, *arguments], here, environment=PLAIN | more, errors_apart=True)
    assert done.status == 0, done.errors
    return done.said.removesuffix(done.errors).splitlines()


def bars(lines: list[str]) -> list[str]:
    return [line for line in lines if re.search(r"\d/6 ", line)]


def test_at_80_120_and_40_columns_one_after_the_other(scripts: Scripts, tmp_path: Path) -> None:
    lines = lines_of(drawn(scripts, tmp_path, "--widths", "80,120,40"))
    wide = rf"iteration \d/6 [━─]{{10,}} {CLOCK} elapsed, ({CLOCK}|-:--) to go"
    assert any(re.fullmatch(wide + r"  reward 0\.541  pass@8 0\.981", line) for line in bars(lines))
    assert any(
        re.fullmatch(wide + r"  reward 0\.541  pass@8 0\.981  loss 0\.0132  entropy 0\.312( +1\.2k tokens/s)?", line)
        for line in bars(lines)
    )
    assert any(re.fullmatch(rf"\d/6 [━─]+ {CLOCK}( elapsed)?, {CLOCK} to go", line) for line in bars(lines))
    assert all(re.search(rf"{CLOCK}.*(to go|-:--|{CLOCK})", line) for line in bars(lines))
    assert lines.count("evaluation 0: mean@1 0.366  pass@16 0.950") == 1
    assert lines.count(EVALUATION) == 1
    assert not any(line.startswith("iteration") and "s/iteration" in line for line in lines)
    assert lines[-1] == "the end"


def test_warnings_stand_on_lines_of_their_own(scripts: Scripts, tmp_path: Path) -> None:
    lines = lines_of(drawn(scripts, tmp_path))
    assert any(re.search(r"UserWarning: a library warns$", line) for line in lines)
    assert "the program warns" in lines
    assert all("warns" not in line for line in bars(lines))


@pytest.mark.parametrize(
    ("more", "encoding", "bar"), [({"NO_COLOR": "1"}, "utf-8", "━"), ({}, "utf-8", "━"), ({}, "iso-8859-1", "#")]
)
def test_odd_terminals(more: dict[str, str], encoding: str, bar: str, scripts: Scripts, tmp_path: Path) -> None:
    written = drawn(scripts, tmp_path, encoding=encoding, **more)
    lines = lines_of(written, encoding)
    assert EVALUATION in lines
    last = bars(lines)[-1]
    assert last.startswith(f"iteration 6/6 {bar}")
    assert "0:00 to go" in last
    assert len(last) <= 80
    coloured = re.search(rb"\x1b\[[0-9;]*(3[0-8]|9[0-7])[0-9;]*m", written) is not None
    assert coloured is ("NO_COLOR" not in more)


@pytest.mark.parametrize("more", [{}, {"TERM": "dumb", "COLUMNS": "40"}])
def test_without_a_terminal_each_line_has_the_time_of_day_the_pace_and_the_time_to_go(
    more: dict[str, str], scripts: Scripts, tmp_path: Path
) -> None:
    lines = piped(scripts, tmp_path, **more)
    day = r"\d\d:\d\d:\d\d  "
    metrics = r"reward 0\.541  pass@8 0\.981  loss 0\.0132  entropy 0\.312  1\.2k tokens/s"
    told = [line for line in lines if "s/iteration" in line]
    assert len(told) == 6
    for number, line in enumerate(told, start=1):
        pattern = rf"{day}iteration {number}/6  {metrics}  [\d.]+ s/iteration  {CLOCK} to go"
        assert re.fullmatch(pattern, line), line
    assert [line for line in lines if re.fullmatch(day + re.escape(EVALUATION), line)]
    assert not any("━" in line for line in lines)


def test_a_resumed_run_counts_on_and_tells_no_evaluation_again(scripts: Scripts, tmp_path: Path) -> None:
    lines = piped(scripts, tmp_path, "--done", "4")
    told = [line for line in lines if "s/iteration" in line]
    assert [re.search(r"iteration (\d)/6", line)[1] for line in told] == ["5", "6"]  # type: ignore[index]
    assert not any("evaluation" in line for line in lines)


def test_the_second_rank_says_only_what_is_wrong(scripts: Scripts, tmp_path: Path) -> None:
    lines = piped(scripts, tmp_path, "--rank", "1")
    assert [line.split("  ", 1)[-1] for line in lines] == ["the program warns", "the end"]
