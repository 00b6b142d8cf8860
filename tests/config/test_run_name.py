"""Names of runs and their folders."""

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from places import ROOT

from ngrpo.config.run_name import run_name
from ngrpo.config.schema import register


@pytest.mark.parametrize(
    ("exploration", "algo", "seed", "name"),
    [
        ("neighbor", "gspo", 0, "neighbor-gspo-s0"),
        ("mine/annealed", "my algo", 12, "mine_annealed-my_algo-s12"),
        (None, "../x", 1, "none-.._x-s1"),
    ],
)
def test_names_are_those_of_folders(exploration: str | None, algo: str, seed: int, name: str) -> None:
    assert run_name(exploration, algo, seed) == name


def test_the_folder_of_a_run_tells_method_and_seed() -> None:
    register()
    chosen = ["exploration=neighbor", "algo=gspo", "seed=3"]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        HydraConfig.instance().set_config(compose("train", chosen, return_hydra_config=True))
    try:
        day, name = HydraConfig.get().run.dir.removeprefix("outputs/").split("/")
    finally:
        HydraConfig.instance().cfg = None
    assert len(day.split("-")) == 3
    assert name.startswith("neighbor-gspo-s3-")
    assert len(name.split("-")) == 7  # to the microsecond
