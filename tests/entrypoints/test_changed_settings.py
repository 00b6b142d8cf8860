"""What a run says of its settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from ngrpo.config.schema import register
from ngrpo.entrypoints.changed_settings import changed_settings
from ngrpo.entrypoints.hydra_main import CONF


@contextmanager
def composed(*typed: str) -> Iterator[dict[str, Any]]:
    """Gives the settings that these overrides come to, within a program that Hydra has started."""
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        whole = compose("train", overrides=list(typed), return_hydra_config=True)
        known = HydraConfig.instance()
        before, known.cfg = known.cfg, OmegaConf.create({"hydra": whole.hydra})
        try:
            own = OmegaConf.masked_copy(whole, [key for key in whole if key != "hydra"])
            yield OmegaConf.to_container(own, resolve=True)
        finally:
            known.cfg = before


@pytest.mark.parametrize(
    ("typed", "changed"),
    [
        ([], {}),
        (["exploration=token", "seed=0"], {}),  # what is typed and the default
        (["algo=gspo", "exploration=neighbor"], {"algo": "gspo", "exploration": "neighbor"}),
        (["algo=gspo", "algo.clip.low=0.5"], {"algo": "gspo", "algo.clip.low": "0.5"}),
        (["algo/correction=truncate"], {"algo/correction": "truncate"}),
        (
            ["callbacks.histograms=null", "rollout.engine.compile=true"],
            {"callbacks.histograms": "null", "rollout.engine.compile": "true"},
        ),
        (["reward_terms=[overlong]"], {"reward_terms": "[overlong]"}),
        (["+callbacks.histograms.more=3"], {"callbacks.histograms.more": "3"}),
        (["ckpt=latest"], {}),  # told elsewhere
    ],
)
def test_settings_that_differ_from_the_defaults(typed: list[str], changed: dict[str, str]) -> None:
    with composed(*typed) as settings:
        assert changed_settings(settings) == changed


@pytest.mark.parametrize("path", ["/data/model=1, 'two'", r"C:\model"])
def test_the_defaults_are_those_of_the_model(path: str) -> None:
    escaped = path.replace("'", "\\'")
    with composed(f"model.path='{escaped}'", "trainer.iterations=40") as settings:
        assert changed_settings(settings) == {"model.path": path, "trainer.iterations": "40"}
    with composed("trainer.iterations=40") as settings:
        assert changed_settings(settings) == {}


def test_what_an_experiment_sets_is_listed() -> None:
    with composed("experiment=study_demo") as settings:
        changed = changed_settings(settings)
    assert {name: changed[name] for name in ("callbacks.run_record.every", "callbacks.checkpoint")} == {
        "callbacks.run_record.every": "20", "callbacks.checkpoint": "null",
    }  # fmt: skip


def test_nothing_is_told_of_settings_that_nobody_composed() -> None:
    assert changed_settings({"model": {"path": "demo"}}) == {}
