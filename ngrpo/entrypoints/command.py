"""The console command ``ngrpo``: one subcommand for each script, and ``init``.

What a subcommand needs is imported when it is called, so that ``ngrpo --help`` is there at once.
"""

import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

from ngrpo import __version__
from ngrpo.utils.optional_packages import MissingExtra, naming_extras

_HELP = ("-h", "--help")


@dataclass(frozen=True)
class Subcommand:
    """One of the things that ``ngrpo`` does.

    Attributes:
        module: of its ``main``.
        summary: for the list.
        composed: its settings are composed by Hydra.
    """

    module: str
    summary: str
    composed: bool = False

    def run(self, name: str, arguments: Sequence[str]) -> None:
        """Runs it as if it were the program."""
        sys.argv = [f"ngrpo {name}", *arguments]
        if self.composed:
            # As python -m would: training on several devices starts its other processes by the name of this module.
            runpy.run_module(self.module, run_name="__main__", alter_sys=True)
            return
        from ngrpo.entrypoints.error_handling import run_main

        run_main(import_module(self.module).main)


_HOME = "ngrpo.entrypoints"

SUBCOMMANDS = {
    "train": Subcommand(f"{_HOME}.train_command", "train a policy", composed=True),
    "evaluate": Subcommand(f"{_HOME}.evaluate_command", "sample a model's answers, and score them", composed=True),
    "sample": Subcommand(f"{_HOME}.sample_command", "sample responses to a prompt, and show what was mixed"),
    "init": Subcommand(f"{_HOME}.init_command", "write a small project of your own: strategy, reward, data, test"),
    "serve": Subcommand(f"{_HOME}.serve_command", "serve rollouts over HTTP, to others and to trainings elsewhere"),
    "plan": Subcommand(f"{_HOME}.plan_command", "plan a run's memory, tokens and time before it starts", composed=True),
    "methods": Subcommand(f"{_HOME}.list_methods_command", "list the exploration strategies and the algorithms"),
    "inspect-data": Subcommand(f"{_HOME}.inspect_data_command", "show what a data set holds and what is left out"),
    "neighbors": Subcommand(f"{_HOME}.neighbors_command", "print the nearest embedding rows of words"),
    "verify": Subcommand(f"{_HOME}.verify_command", "say of pairs of reference and response who is right"),
    "report": Subcommand(f"{_HOME}.report_command", "write a run's report page anew, or one that compares runs"),
    "compare": Subcommand(f"{_HOME}.compare_command", "compare evaluations problem by problem"),
    "export": Subcommand(f"{_HOME}.export_command", "write a checkpoint's policy as a Hugging Face folder"),
    "replay-step": Subcommand(f"{_HOME}.replay_step_command", "replay a skipped optimiser step"),
    "study": Subcommand(f"{_HOME}.study_command", "compare methods over many seeds"),
}


def main() -> None:
    """Runs the subcommand that the command line names."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in _HELP:
        print(_usage())
    elif name == "--version":
        print(f"ngrpo {__version__}")
    elif name in SUBCOMMANDS:
        try:
            with naming_extras(f"ngrpo {name}"):
                SUBCOMMANDS[name].run(name, arguments)
        except MissingExtra as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(1) from None
    else:
        print(_unknown(name), file=sys.stderr)
        raise SystemExit(2)


def _usage() -> str:
    width = max(map(len, SUBCOMMANDS))
    lines = [f"  {name:<{width}}  {subcommand.summary}" for name, subcommand in SUBCOMMANDS.items()]
    return "\n".join(["usage: ngrpo COMMAND [...]; ngrpo COMMAND --help says more", "", *lines])


def _unknown(name: str) -> str:
    near = get_close_matches(name, SUBCOMMANDS, n=1)
    remedy = f"did you mean ngrpo {near[0]}?" if near else f"choose one of {', '.join(SUBCOMMANDS)}."
    return f"error: {name!a} is no command of ngrpo; {remedy}"
