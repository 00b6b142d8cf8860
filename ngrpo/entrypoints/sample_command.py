"""The command line that samples responses to a prompt, and shows what was mixed.

    ngrpo sample MODEL "How much is 3 + 4?" exploration=neighbor n=4

MODEL is a folder, a hub name or demo. Further words are settings of conf/sample.yaml, which has the model, the
strategies and the engines of training. Mixed positions stand in brackets, each with the tokens that were mixed there
and their weights; the first token is the one that became text.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich import get_console
from rich.text import Text

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.utils.sanitize import visible

if TYPE_CHECKING:
    from ngrpo.entrypoints.sampled_rollout import SampledRollout


def main() -> None:
    """Prints the responses."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("prompt", metavar="PROMPT")
    parser.add_argument("settings", nargs="*", help="such as exploration=neighbor n=4 rollout.temperature=0.7 seed=1")
    parser.add_argument("--config-dir", type=Path, help="a folder of yaml files and modules of yours")
    arguments = parser.parse_intermixed_args()
    from ngrpo.config.check import checked
    from ngrpo.config.instantiate import build
    from ngrpo.config.schema import SampleConfig
    from ngrpo.entrypoints.composition import composed
    from ngrpo.entrypoints.console import silence_libraries
    from ngrpo.entrypoints.override_words import words_of
    from ngrpo.entrypoints.sample import draw_samples

    silence_libraries()
    words = [*words_of({"model": {"path": arguments.model}}), *arguments.settings]
    config = checked(composed("sample", words, arguments.config_dir).config, SampleConfig)
    rollouts = draw_samples(config, build(config.model), [arguments.prompt])
    for number, rollout in enumerate(rollouts, start=1):
        get_console().print(shown(number, rollout), soft_wrap=True)


def shown(number: int, rollout: "SampledRollout") -> Text:
    """Returns a heading and the response, mixed positions in bold brackets."""
    from ngrpo.entrypoints.sampled_rollout import described

    heading = f"{number}: {rollout.length} tokens, {len(rollout.mixed)} mixed, ended by {rollout.stop_reason}"
    text = Text(f"{heading}\n", style="dim")
    mixed = {one.place: one for one in rollout.mixed}
    for place, token in enumerate(rollout.token_texts):
        if place in mixed:
            text.append(visible(described(mixed[place], token)), style="not dim bold")
        else:
            text.append(visible(token), style="not dim")
    return text


if __name__ == "__main__":
    run_main(main)
