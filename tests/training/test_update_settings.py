"""Settings of the optimiser steps."""

import pytest

from ngrpo.errors import SettingError
from ngrpo.training.update_settings import UpdateSettings


@pytest.mark.parametrize("settings", [{"microbatch_tokens": 0}, {"max_grad_norm": -1.0}, {"head_rows": 0}])
def test_what_must_be_positive_is(settings: dict[str, float]):
    ((name, value),) = settings.items()
    with pytest.raises(SettingError, match=rf"^trainer\.{name}={value} must be positive; raise it\.$"):
        UpdateSettings(**settings)


def test_an_unknown_precision_is_refused():
    with pytest.raises(SettingError, match=r"^trainer\.precision=16-mixed is not known; choose 32-true or bf16-mixed"):
        UpdateSettings(precision="16-mixed")
    assert [UpdateSettings(precision=p).mixed for p in ("32-true", "bf16-mixed")] == [False, True]


def test_settings_are_given_by_name():
    with pytest.raises(TypeError):
        UpdateSettings(1.0, 8192)
