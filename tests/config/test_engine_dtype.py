"""An engine serves what the trainer computes in, unless it is told otherwise."""

import pytest
from hydra import compose, initialize_config_dir
from places import ROOT

from ngrpo.config.schema import register


@pytest.mark.parametrize("rollout", ["auto", "torch", "vllm"])
@pytest.mark.parametrize(
    ("words", "dtype"),
    [
        ((), "auto"),
        (("trainer.precision=bf16-mixed",), "auto"),
        (("trainer.precision=16-mixed",), "float16"),
        (("trainer.precision=16-mixed", "rollout.engine.dtype=float32"), "float32"),
    ],
)
def test_float16_is_on_both_sides(rollout: str, words: tuple[str, ...], dtype: str):
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        assert compose("train", overrides=[f"rollout={rollout}", *words]).rollout.engine.dtype == dtype
        alone = compose("evaluate", overrides=[f"rollout={rollout}", "model.path=demo"])
    assert alone.rollout.engine.dtype == "auto"
