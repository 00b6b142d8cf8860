from pathlib import Path

import torch
from safetensors.torch import save_file

from ngrpo.evaluation.identity import prompts_digest
from ngrpo.modeling.digest import weights_digest
from ngrpo.modeling.loading import ModelSource
from ngrpo.types.problems import Problem, Prompt


def digest_of(folder: Path, weights: torch.Tensor) -> str:
    folder.mkdir(exist_ok=True)
    save_file({"w": weights}, folder / "model.safetensors")
    return weights_digest(ModelSource(str(folder)))


def test_weights_elsewhere_are_the_same_and_other_weights_are_not(tmp_path: Path) -> None:
    weights = torch.arange(600_000.0)
    first = digest_of(tmp_path / "a", weights)
    assert digest_of(tmp_path / "b", weights) == first
    for place in (0, -1):
        other = weights.clone()
        other[place] += 1
        assert digest_of(tmp_path / "b", other) != first


def test_every_part_of_the_prompts_counts() -> None:
    prompt = Prompt(Problem(1, "q", "a"), (1, 2))
    others = [
        [Prompt(Problem(2, "q", "a"), (1, 2))],
        [Prompt(Problem(1, "q", "b"), (1, 2))],
        [Prompt(Problem(1, "q", "a"), (1, 3))],
        [prompt, prompt],
    ]
    assert len({prompts_digest(prompts) for prompts in [[prompt], *others]}) == 5
