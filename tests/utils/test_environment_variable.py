"""A variable that is set for a while is afterwards what it was before, also after an exception."""

import os

import pytest

from ngrpo.utils.environment_variable import environment_variable


@pytest.mark.parametrize("before", [None, "", "before"])
def test_it_is_restored(monkeypatch, before):
    monkeypatch.delenv("NGRPO_TEST", raising=False)
    if before is not None:
        monkeypatch.setenv("NGRPO_TEST", before)

    def fail_inside() -> None:
        with environment_variable("NGRPO_TEST", "meanwhile"):
            assert os.environ["NGRPO_TEST"] == "meanwhile"
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert os.environ.get("NGRPO_TEST") == before
