"""The command line of a server of rollouts: ``ngrpo serve MODEL exploration=neighbor``.

    ngrpo serve MODEL exploration=neighbor server.port=8000

MODEL is a folder, a hub name or demo. Further words are settings of conf/serve.yaml, which has the model, the
strategies and the engines of training. It listens on this machine only, unless server.host says otherwise and the
environment variable NGRPO_SERVER_TOKEN holds a token.
"""

import argparse
from pathlib import Path

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.utils.optional_packages import require


def main() -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("settings", nargs="*", help="such as exploration=neighbor rollout=vllm server.port=8000")
    parser.add_argument("--config-dir", type=Path, help="a folder of yaml files and modules of yours")
    arguments = parser.parse_intermixed_args()
    for package in ("starlette", "uvicorn", "prometheus_client"):
        require(package, f"ngrpo serve {arguments.model}", extra="serve")
    import logging

    from rich import get_console

    from ngrpo.config.check import checked
    from ngrpo.config.schema import ServeConfig
    from ngrpo.entrypoints.composition import composed
    from ngrpo.entrypoints.console import ConsoleHandler, silence_libraries
    from ngrpo.entrypoints.override_words import words_of
    from ngrpo.entrypoints.serve import serve

    silence_libraries()
    ours = logging.getLogger("ngrpo")
    ours.setLevel(logging.INFO)
    ours.addHandler(ConsoleHandler(logging.INFO))
    words = [*words_of({"model": {"path": arguments.model}}), *arguments.settings]
    composition = composed("serve", words, arguments.config_dir)
    serve(checked(composition.config, ServeConfig), composition.choices["exploration"])
    get_console().print("stopped", style="dim")


if __name__ == "__main__":
    run_main(main)
