"""The command line that writes a checkpoint's policy as a Hugging Face folder.

    ngrpo export RUN_OR_CHECKPOINT TARGET [--push-to user/name [--public]]

The run's settings say what was trained; what they may run is said here, whatever they permit themselves.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ngrpo.config.instantiate import build
from ngrpo.config.permissions import StoredPermissions
from ngrpo.config.schema import register
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.errors import RunError, SettingError, first_line

if TYPE_CHECKING:
    from ngrpo.checkpoint.hub_push import HubRepository


def main() -> None:
    """Exports the newest checkpoint of a run, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="a run's folder, or one of its checkpoints")
    parser.add_argument("target", type=Path, help="folder to write")
    parser.add_argument(
        "--push-to", metavar="USER/NAME", help="push it to this repository on the Hugging Face Hub, too"
    )
    parser.add_argument("--public", action="store_true", help="make the repository, if it is new, a public one")
    StoredPermissions.add_options(parser)
    arguments = parser.parse_args()
    from ngrpo.checkpoint.export import checkpoint_weights, export
    from ngrpo.checkpoint.export_target import check_target, new_folder
    from ngrpo.checkpoint.folders import iteration_of, open_checkpoint, resolve
    from ngrpo.checkpoint.hub_push import HubRepository
    from ngrpo.entrypoints.config_snapshot import load_config
    from ngrpo.modeling.loading import ModelSource
    from ngrpo.report.model_card import FILE, write_model_card
    from ngrpo.report.run_store import RunStore

    register()
    permissions = StoredPermissions.of(arguments)
    check_target(arguments.target)
    repository = None if arguments.push_to is None else HubRepository(arguments.push_to, not arguments.public)
    if repository is not None:
        repository.check("--push-to")
    folder = resolve(arguments.checkpoint, Path(arguments.checkpoint), Path("outputs"))
    open_checkpoint(folder)
    source = build(*permissions.checked(load_config(folder.parents[1]), ["model"]))
    if not isinstance(source, ModelSource):
        raise SettingError(f"the settings of the run in {folder.parents[1]} name no model; they are damaged.")
    with new_folder(arguments.target) as target:
        export(source, source.tokenizer(), checkpoint_weights(folder, source.lora), target)
        store, done = RunStore(folder.parents[1]), iteration_of(folder)
        name, base_card = arguments.push_to, source.file(FILE)
        write_model_card(target, name, base_card, store.description(), store.evaluations(), done)
    print(f"wrote {arguments.target} from {folder}")
    if repository is not None:
        _push(repository, arguments.target)


def _push(repository: "HubRepository", folder: Path) -> None:
    try:
        print(f"pushed it to {repository.push(folder)}")
    except Exception as error:  # httpx's or requests', by the version of huggingface_hub
        raise RunError(
            f"{folder} is written, but was not pushed to {repository.name} ({first_line(error)}); push it again: "
            f"{repository.command(folder)}"
        ) from error


if __name__ == "__main__":
    run_main(main)
