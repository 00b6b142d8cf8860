from pathlib import Path

import torch
from safetensors.torch import save_file

from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.evaluation.identity import comparable, evaluation_digest, prompts_digest
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


def test_settings_and_prompts_of_an_evaluation_count_and_where_its_objects_lie_does_not() -> None:
    class Plain:
        """Its ``repr`` is that of object."""

    prompts = {"": [Prompt(Problem(1, "q", "a"), (1, 2))]}
    kept = [Plain(), Plain()]
    assert len({evaluation_digest(one, prompts) for one in kept}) == 1
    others = [evaluation_digest(kept[0], {"aime24/": prompts[""]}), evaluation_digest(kept[0], {"": []})]
    assert len({evaluation_digest(kept[0], prompts), evaluation_digest("other", prompts), *others}) == 4


def test_evaluations_of_the_same_are_compared_and_those_that_do_not_say_by_what_they_found() -> None:
    def one(iteration: int, made_of: str, problems: int = 2) -> EvaluationResult:
        return EvaluationResult(iteration, {"mean@1": 0.5}, {"": [0.5] * problems}, made_of)

    silent, fewer = one(0, ""), one(1, "", problems=1)
    assert comparable([]) == []
    assert comparable([silent, fewer]) == [silent, fewer]
    assert comparable([silent, fewer, one(2, "x")]) == [silent, one(2, "x")]
    assert comparable([one(0, "x"), one(1, "y"), one(2, "x")]) == [one(0, "x"), one(2, "x")]
    assert comparable([one(0, "x"), silent]) == [silent]
