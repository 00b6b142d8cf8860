"""The accuracy of a demo model on problems that it was not pretrained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ngrpo.demo_model.lessons import Lessons
from ngrpo.demo_model.pretraining_text import encode_prompt
from ngrpo.demo_model.responses import is_stepped
from ngrpo.evaluation.estimators import pass_at_k
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Request, Sampling


@dataclass(frozen=True)
class Measured:
    """P problems with n responses each, sampled at temperature 1.

    Attributes:
        steps: calculations of each word problem, or numbers of each puzzle; int64 [P].
        right: bool [P, n].
        stepped: whether the calculations are written out; bool [P, n].
    """

    steps: Tensor
    right: Tensor
    stepped: Tensor

    def lines(self) -> list[str]:
        """Returns Mean@1 and Pass@n, over all and by number of steps, and how each style does."""
        groups = {"all problems": torch.ones_like(self.steps, dtype=torch.bool)}
        groups |= {f"{steps} steps": self.steps == steps for steps in sorted(set(self.steps.tolist()))}
        shown = [f"{name}: {self._accuracy(chosen)}" for name, chosen in groups.items()]
        for style, wrote in (("stepped", self.stepped), ("direct", ~self.stepped)):
            right = self.right[wrote].double().mean()
            shown.append(f"{style}: {wrote.double().mean():z.3f} of responses, {right:z.3f} of them right")
        return shown

    def _accuracy(self, chosen: Tensor) -> str:
        right, n = self.right[chosen], self.right.shape[1]
        passes = pass_at_k(n, right.sum(-1), n).mean()
        return f"Mean@1 {right.double().mean():z.3f}  Pass@{n} {passes:z.3f}  ({len(right)} problems)"


def measure(
    folder: Path, lessons: Lessons, response_tokens: int, problems: int, samples: int, device: torch.device
) -> Measured:
    """Samples responses to held-out problems, in large batches.

    Args:
        folder: of the model.
        lessons: whose problems.
        response_tokens: most tokens of a response.
        problems: P.
        samples: n.
        device: where.
    """
    source = ModelSource(str(folder))
    tokenizer = source.tokenizer()
    engine = TorchEngine(source, max_batch_size=2048 if device.type == "cuda" else 128)
    engine.start(device)
    asked = [lessons.problem(key, "held_out") for key in range(problems)]
    prompts = [tuple(encode_prompt(one.question, tokenizer)) for one in asked]
    requests = [Request(ids, request_key(0, key, n)) for key, ids in enumerate(prompts) for n in range(samples)]
    sampling = Sampling(1.0, response_tokens, source.stop_ids(tokenizer))
    bound = bind(TokenSampling(), engine.embedding(), Vocabulary.of(tokenizer))
    made = engine.generate(requests, sampling, bound)
    texts = tokenizer.batch_decode([one.response_ids.tolist() for one in made], skip_special_tokens=True)
    posed = [one for one in asked for _ in range(samples)]

    def grid(flags: Sequence[bool]) -> Tensor:
        return torch.tensor(flags).view(problems, samples)

    return Measured(
        steps=torch.tensor([int(one.difficulty or 0) for one in asked]),
        right=grid([lessons.is_right(text, one) for text, one in zip(texts, posed, strict=True)]),
        stepped=grid([is_stepped(text) for text in texts]),
    )
