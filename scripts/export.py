"""Writes a checkpoint's policy as a Hugging Face folder: ``python scripts/export.py RUN_OR_CHECKPOINT TARGET``."""

import argparse
import sys
from pathlib import Path

from omegaconf import OmegaConf

from ngrpo.checkpoints import resolve
from ngrpo.config import build, register
from ngrpo.errors import SettingError
from ngrpo.modeling.export import checkpoint_weights, export


def main() -> None:
    """Exports the newest checkpoint of a run, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", help="a run's folder, or one of its checkpoints")
    parser.add_argument("target", type=Path, help="folder to write")
    arguments = parser.parse_args()
    register()
    try:
        folder = resolve(arguments.checkpoint, Path(arguments.checkpoint), Path("outputs"))
        config = OmegaConf.load(folder.parents[1] / ".hydra" / "config.yaml")
        source = build(config.model)
        export(source, source.tokenizer(), checkpoint_weights(folder, source.lora), arguments.target)
    except SettingError as error:
        sys.exit(f"error: {error}")
    print(f"wrote {arguments.target} from {folder}")


if __name__ == "__main__":
    main()
