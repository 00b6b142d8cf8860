"""The command line that writes a checkpoint's policy as a Hugging Face folder.

    ngrpo export RUN_OR_CHECKPOINT TARGET

The run's settings say what was trained; what they may run is said here, whatever they permit themselves.
"""

import argparse
from pathlib import Path

from ngrpo.config.instantiate import build
from ngrpo.config.permissions import StoredPermissions
from ngrpo.config.schema import register
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.errors import SettingError


def main() -> None:
    """Exports the newest checkpoint of a run, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="a run's folder, or one of its checkpoints")
    parser.add_argument("target", type=Path, help="folder to write")
    StoredPermissions.add_options(parser)
    arguments = parser.parse_args()
    from ngrpo.checkpoint.export import checkpoint_weights, export
    from ngrpo.checkpoint.export_target import check_target, new_folder
    from ngrpo.checkpoint.folders import open_checkpoint, resolve
    from ngrpo.entrypoints.config_snapshot import load_config
    from ngrpo.modeling.loading import ModelSource

    register()
    permissions = StoredPermissions.of(arguments)
    check_target(arguments.target)
    folder = resolve(arguments.checkpoint, Path(arguments.checkpoint), Path("outputs"))
    open_checkpoint(folder)
    source = build(*permissions.checked(load_config(folder.parents[1]), ["model"]))
    if not isinstance(source, ModelSource):
        raise SettingError(f"the settings of the run in {folder.parents[1]} name no model; they are damaged.")
    with new_folder(arguments.target) as target:
        export(source, source.tokenizer(), checkpoint_weights(folder, source.lora), target)
    print(f"wrote {arguments.target} from {folder}")


if __name__ == "__main__":
    run_main(main)
