"""Settings of the optimiser steps."""

import pytest
import torch

from ngrpo.errors import SettingError
from ngrpo.training.update_settings import UpdateSettings


@pytest.mark.parametrize("settings", [{"microbatch_tokens": 0}, {"max_grad_norm": -1.0}, {"head_rows": 0}])
def test_what_must_be_positive_is(settings: dict[str, float]):
    ((name, value),) = settings.items()
    with pytest.raises(SettingError, match=rf"^trainer\.{name}={value} must be positive; raise it\.$"):
        UpdateSettings(**settings)


def test_an_unknown_precision_is_refused():
    for precision in ("16", "fp16", "16-true"):
        said = rf"^trainer\.precision={precision} is not known; choose one of 32-true, bf16-mixed, 16-mixed \("
        with pytest.raises(SettingError, match=said):
            UpdateSettings(precision=precision)
    made = [UpdateSettings(precision=p).mixed_in for p in ("32-true", "bf16-mixed", "16-mixed")]
    assert made == [None, torch.bfloat16, torch.float16]


def test_settings_are_given_by_name():
    with pytest.raises(TypeError):
        UpdateSettings(1.0, 8192)
