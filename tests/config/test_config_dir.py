"""The folder of ``--config-dir``: Hydra finds what lies in it, whatever it is called."""

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from ngrpo.config.config_dir import search_path


@pytest.mark.parametrize("name", ["plain", "with space", "it's", r"back\slash", r"both\'", "ends\\"])
def test_hydra_reads_the_folder_that_was_given(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    (word,) = search_path(folder)
    read = OverridesParser.create().parse_override(word)
    assert (read.key_or_group, read.value()) == ("hydra.searchpath", [f"file://{folder}"])


def test_without_a_folder_nothing_is_searched() -> None:
    assert search_path(None) == []
