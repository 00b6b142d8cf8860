"""The settings in a run's folder."""

from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from places import ROOT

from ngrpo.config.schema import register
from ngrpo.entrypoints.config_snapshot import save_config

CONF = ROOT / "conf"
OVERRIDES = ["exploration=neighbor", "trainer.iterations=3"]


def test_what_is_kept_composes_the_same_run(tmp_path: Path):
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        whole = compose("train", overrides=OVERRIDES, return_hydra_config=True)
        HydraConfig.instance().set_config(whole)
        try:
            save_config(compose("train", overrides=OVERRIDES), tmp_path)
        finally:
            HydraConfig.instance().cfg = None
        folder = tmp_path / ".hydra"
        assert {path.name for path in folder.iterdir()} == {"config.yaml", "overrides.yaml", "hydra.yaml"}
        assert list(OmegaConf.load(folder / "overrides.yaml")) == OVERRIDES
        kept = (folder / "config.yaml").read_text()
        assert "${" not in kept
        again = OmegaConf.to_container(compose("train", overrides=OVERRIDES), resolve=True)
        assert OmegaConf.to_container(OmegaConf.create(kept)) == again
        assert OmegaConf.load(folder / "hydra.yaml").hydra.output_subdir is None
