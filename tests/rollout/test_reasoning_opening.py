"""A prompt that opens the reasoning block is taken into account when a response is scored."""

import pytest
import torch

from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rewards.math import MathReward
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.types.problems import Problem, Prompt
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Rollout, StopReason


class Scripted:
    """An engine that answers with given texts."""

    def __init__(self, tokenizer, texts: list[str]) -> None:
        self.answers = [tokenizer(text, add_special_tokens=False).input_ids for text in texts]

    def embedding(self) -> torch.Tensor:
        return torch.eye(4)

    def generate(self, requests, sampling, exploration, report=None) -> list[Rollout]:
        empty = Mixture(
            torch.zeros(0, dtype=torch.long), Record(torch.zeros(0, 0, dtype=torch.int32), torch.zeros(0, 0))
        )
        return [
            Rollout(
                r.key, torch.tensor(r.prompt_ids), torch.tensor(ids), torch.zeros(len(ids)), empty, StopReason.LENGTH
            )
            for r, ids in zip(requests, self.answers, strict=True)
        ]


@pytest.mark.parametrize(("generation_prompt", "correct"), [(True, [False, True]), (False, [True, True])])
def test_a_box_in_unfinished_reasoning_does_not_count(generation_prompt: bool, correct: list[bool]):
    source = ModelSource()
    tokenizer = source.tokenizer()
    message = [{"role": "user", "content": "How many?"}]
    ids = tokenizer.apply_chat_template(message, add_generation_prompt=generation_prompt, return_dict=False)
    texts = ["first \\boxed{4} then", "so\n</think>\n\\boxed{4}"]
    worker = RolloutWorker(
        Scripted(tokenizer, texts), tokenizer, MathReward(), TokenSampling(), RolloutSettings(group_size=2), (2,), 0
    )
    made = worker.roll_out([Prompt(Problem(0, "How many?", "4"), tuple(ids))], 0)
    worker.reward.close()
    assert made.correct.tolist() == [correct]
