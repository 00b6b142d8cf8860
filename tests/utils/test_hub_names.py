"""Names on the hub, told from places on this machine."""

import pytest

from ngrpo.errors import SettingError
from ngrpo.utils.hub_access import check_place_or_name


@pytest.mark.parametrize("path", ["gpt2", "Qwen/Qwen2.5-0.5B", "a.b/c_d-e"])
def test_names_may_be_on_the_hub(path):
    check_place_or_name(path, "model.path")


@pytest.mark.parametrize("path", ["/nope/model", "./model", "../model", "~/model", "a/b/c", "model/", "a b"])
def test_places_with_nothing_there_are_refused(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match=r"^model\.path=.*user/name\)\.$"):
        check_place_or_name(path, "model.path")


def test_what_is_there_is_taken(tmp_path):
    check_place_or_name(str(tmp_path), "model.path")
