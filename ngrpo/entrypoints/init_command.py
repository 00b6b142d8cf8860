"""The command line that writes a small project: settings, a strategy, a reward, data and a test.

    ngrpo init DIR

DIR must not exist, or be empty. ``ngrpo train --config-dir DIR experiment=mine`` then trains the demo model with it.
"""

import argparse
import shlex
import shutil
from pathlib import Path

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.errors import SettingError
from ngrpo.utils.sanitize import visible

TEMPLATE = Path(__file__).parent / "project_template"
"""The project, as it is written."""


def main() -> None:
    """Writes the project and says how to run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder to write")
    folder = parser.parse_args().folder
    write_project(folder)
    written = visible(shlex.quote(str(folder)))
    print(f"wrote {written}; next: ngrpo train --config-dir {written} experiment=mine")


def write_project(folder: Path) -> None:
    """Copies the template.

    Raises:
        SettingError: something is there already.
    """
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"{folder} is a file; give a new folder.")
    if folder.is_dir() and any(folder.iterdir()):
        raise SettingError(f"{folder} is not empty; give a new folder.")
    shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"), dirs_exist_ok=True)


if __name__ == "__main__":
    run_main(main)
