"""The command line that makes a demo model: its tokenizer, and weights pretrained on generated word problems.

    python scripts/make_demo_model.py --output /tmp/demo-model
    python scripts/make_demo_model.py --size large --output /tmp/study-model

The first takes 10 to 15 minutes on one CPU core; the shipped model (0.74 million weights, 3 MB) is the result. On 200
held-out problems, 16 samples each at temperature 1: Mean@1 0.377, Pass@16 0.975; 22 % of the responses write the steps
out and 91 % of those are right, against 23 % of the others.

The second makes the study's model (26 million weights, problems of two to six calculations) and needs a GPU. Nothing
needs a network. A third size shows a pretrained model how the demo's answers look, half an hour on two CPU cores:

    python scripts/make_demo_model.py --size adapted --base HuggingFaceTB/SmolLM2-135M-Instruct --output /tmp/adapted

Two more are starting points with room to improve, for comparisons of methods; minutes on a CPU core: one was taught
short word problems with large numbers, the other solves some of the countdown puzzles
(``data=countdown reward=countdown``):

    python scripts/make_demo_model.py --size short --output /tmp/word-problem-model
    python scripts/make_demo_model.py --size countdown --output /tmp/countdown-model
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast

from ngrpo.demo_model.lessons import Lessons, WordProblemLessons
from ngrpo.demo_model.measuring import measure
from ngrpo.demo_model.pretraining import adapt, make_model, pretrain
from ngrpo.demo_model.recipe import SIZES, Recipe
from ngrpo.demo_model.tokenizer import train_tokenizer
from ngrpo.entrypoints.arguments import SEEDS, real, whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.errors import SettingError
from ngrpo.utils.atomic_write import apply_umask

VOCABULARY = 576


def main() -> None:
    """Train, save, measure."""
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    recipe = chosen_recipe(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, tokenizer = begin(recipe, arguments.base)
    arguments.output.mkdir(parents=True, exist_ok=True)
    model.to(device)
    pretrain(model, tokenizer, recipe, recipe.steps, arguments.workers, lambda line: print(line, flush=True))
    save(model.cpu(), tokenizer, arguments.output)
    found = measure(
        arguments.output, recipe.lessons, recipe.response_tokens, arguments.problems, arguments.samples, device
    )
    print(*found.lines(), sep="\n")


def begin(recipe: Recipe, base: str | None) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """What is trained: a model of the recipe's shape, or ``base``."""
    if (recipe.shape is None) != (base is not None):
        raise SettingError("--size adapted and --base MODEL go together; give both or neither.")
    if base is not None:
        return adapt(base)
    tokenizer = train_tokenizer(recipe.lessons.texts(5000), VOCABULARY)
    return make_model(tokenizer, recipe), tokenizer


def parse() -> argparse.Namespace:
    """What is made, from the command line."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for the model")
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--base", help="folder or hub name of a pretrained model, with --size adapted")
    parser.add_argument("--steps", type=whole(1), help="optimiser steps (default: the size's own)")
    parser.add_argument("--batch", type=whole(1), help="examples an optimiser step (default: the size's own)")
    parser.add_argument(
        "--written",
        type=real(0),
        default=1.0,
        help="factor on the shares of worked-out responses at the end: larger for a higher Mean@1",
    )
    parser.add_argument(
        "--workers", type=whole(0, 1024), default=0, help="processes that make batches; for a GPU all cores but one"
    )
    parser.add_argument("--seed", type=whole(0, SEEDS), default=0)
    parser.add_argument("--threads", type=whole(1, 1024), default=1)
    parser.add_argument("--problems", type=whole(1), default=200, help="held-out problems that are measured")
    parser.add_argument("--samples", type=whole(1), default=16, help="responses to each of them")
    return parser.parse_args()


def chosen_recipe(arguments: argparse.Namespace) -> Recipe:
    """The size's recipe with what the command line changes."""
    recipe = SIZES[arguments.size]
    steps, batch = arguments.steps or recipe.steps, arguments.batch or recipe.batch
    return replace(recipe, steps=steps, batch=batch, lessons=_written(recipe.lessons, arguments.written))


def _written(lessons: Lessons, factor: float) -> Lessons:
    """Lessons with other shares of worked-out responses at the end; countdown puzzles are always worked out."""
    if not isinstance(lessons, WordProblemLessons):
        return lessons
    return replace(lessons, settle={steps: min(1.0, share * factor) for steps, share in lessons.settle.items()})


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write an ordinary Hugging Face folder."""
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    apply_umask(folder)


if __name__ == "__main__":
    run_main(main)
