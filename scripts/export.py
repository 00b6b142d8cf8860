"""Writes a checkpoint's policy as a Hugging Face folder: ``python scripts/export.py RUN_OR_CHECKPOINT TARGET``."""

import argparse
from pathlib import Path

from omegaconf import OmegaConf

from ngrpo.config import build, register
from ngrpo.door import guarded
from ngrpo.targets import check_allowed


def main() -> None:
    """Exports the newest checkpoint of a run, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", help="a run's folder, or one of its checkpoints")
    parser.add_argument("target", type=Path, help="folder to write")
    arguments = parser.parse_args()
    from ngrpo.checkpoints import opened, resolve
    from ngrpo.modeling.export import checkpoint_weights, export

    register()
    folder = resolve(arguments.checkpoint, Path(arguments.checkpoint), Path("outputs"))
    opened(folder)
    config = OmegaConf.load(folder.parents[1] / ".hydra" / "config.yaml")
    check_allowed(config.model, config.get("allow_targets", []), "model")
    source = build(config.model)
    export(source, source.tokenizer(), checkpoint_weights(folder, source.lora), arguments.target)
    print(f"wrote {arguments.target} from {folder}")


if __name__ == "__main__":
    guarded(main)
