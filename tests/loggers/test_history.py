"""What earlier processes of a run have logged."""

import os
from pathlib import Path

from ngrpo.loggers.history import rename_future_events, rows_before


def test_a_torn_line_is_no_row(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text("a,b,step\n1,2,0\n3,4,1\n5,")
    assert rows_before(file, 9) == [{"a": "1", "b": "2", "step": "0"}, {"a": "3", "b": "4", "step": "1"}]
    assert rows_before(file, 1) == [{"a": "1", "b": "2", "step": "0"}]
    assert rows_before(tmp_path / "none.csv", 1) == []


def test_files_of_the_past_keep_their_names(tmp_path: Path) -> None:
    names = ["events.out.tfevents.0000000007.host.1.0", "events.out.tfevents.0000000009.host.1.0"]
    for name in names:
        (tmp_path / name).touch()
    rename_future_events(tmp_path, 10)
    assert sorted(os.listdir(tmp_path)) == names
    rename_future_events(tmp_path, 9)
    assert sorted(os.listdir(tmp_path)) == [f"events.out.tfevents.{n:010d}.host.1.0" for n in (0, 1)]
    rename_future_events(tmp_path / "nowhere", 9)
