"""The data module: training stream and evaluation prompts."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_warn
from transformers import PreTrainedTokenizerBase

from ngrpo.data.chat import PromptBuilder
from ngrpo.data.loader import MAX_BARREN_ROWS, PromptStream, no_usable_row
from ngrpo.data.sources import Fields, ProblemSource, open_source
from ngrpo.data.types import LeftOut, Prompt
from ngrpo.errors import SettingError


class PromptDataModule(LightningDataModule):
    """Prompts for training and evaluation; opens its sources and builds the evaluation prompts at once.

    Args:
        tokenizer: the model's tokenizer.
        prompts_per_batch: prompts of one training iteration over all ranks.
        seed: of the order of the training rows.
        path: training problems, see `open_source`.
        eval_path: evaluation problems; None takes the held-out half for the demo, nothing otherwise.
        eval_problems: the most evaluation problems to use, from the first row on.
        max_prompt_tokens: rows with longer prompts are left out.
        question_field: field of the question in files and hub data sets.
        answer_field: field of the reference answer.
        instruction: appended to every question; None takes the source's own, ``""`` appends nothing.
        system_prompt: system message; None for none.

    Raises:
        SettingError: a setting is out of range, or a source cannot be opened or has no usable evaluation row.
    """

    def __init__(
        self,
        *,
        tokenizer: PreTrainedTokenizerBase,
        prompts_per_batch: int,
        seed: int,
        path: str | Sequence[str] = "demo",
        eval_path: str | Sequence[str] | None = None,
        eval_problems: int = 200,
        max_prompt_tokens: int = 1024,
        question_field: str = "problem",
        answer_field: str = "answer",
        instruction: str | None = None,
        system_prompt: str | None = None,
    ) -> None:
        super().__init__()
        _check_positive("data.prompts_per_batch", prompts_per_batch)
        _check_positive("data.eval_problems", eval_problems)
        _check_positive("data.max_prompt_tokens", max_prompt_tokens)
        self.tokenizer = tokenizer
        self.prompts_per_batch = prompts_per_batch
        self.seed = seed
        self.max_prompt_tokens = max_prompt_tokens
        self.instruction = instruction
        self.system_prompt = system_prompt
        self._stream: PromptStream | None = None
        fields = Fields(question_field, answer_field)
        self.source = open_source(path, "train", fields)
        self._survey = self._count_unusable() if self.source.in_memory else None
        if eval_path is None and path == "demo":
            eval_path = path
        self._eval_prompts: list[Prompt] = []
        if eval_path is not None:
            eval_source = open_source(eval_path, "held_out", fields, "data.eval_path")
            self._eval_prompts = self._first_prompts(eval_source, eval_problems)

    def train_dataloader(self) -> PromptStream:
        """Return this rank's stream."""
        self._stream = PromptStream(
            self.source,
            self._builder(self.source),
            seed=self.seed,
            prompts_per_batch=self.prompts_per_batch,
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
        )
        return self._stream

    def eval_prompts(self) -> list[Prompt]:
        """Return the evaluation prompts, all of them on every rank."""
        return self._eval_prompts

    @property
    def rows_left_out(self) -> dict[str, int]:
        """Training rows that cannot be used, by reason: of all rows of a file, of those met so far of a stream."""
        if self._survey is not None:
            return dict(self._survey)
        return dict(self._stream.rows_left_out) if self._stream else {}

    def _count_unusable(self) -> Counter[str]:
        build = self._builder(self.source)
        items = (row if isinstance(row, LeftOut) else build(row) for row in self.source.rows())
        return Counter(item.reason for item in items if isinstance(item, LeftOut))

    def _builder(self, source: ProblemSource) -> PromptBuilder:
        instruction = source.instruction if self.instruction is None else self.instruction
        return PromptBuilder(self.tokenizer, self.max_prompt_tokens, instruction, self.system_prompt)

    def _first_prompts(self, source: ProblemSource, limit: int) -> list[Prompt]:
        build = self._builder(source)
        prompts: list[Prompt] = []
        left_out: Counter[str] = Counter()
        for row in islice(source.rows(), limit + MAX_BARREN_ROWS):
            item = row if isinstance(row, LeftOut) else build(row)
            if isinstance(item, Prompt):
                prompts.append(item)
            else:
                left_out[item.reason] += 1
            if len(prompts) == limit:
                break
        if not prompts:
            raise no_usable_row("data.eval_path", source, left_out.total(), left_out)
        if left_out:
            rank_zero_warn(f"data.eval_path={source.identity}: rows left out of the evaluation: {dict(left_out)}")
        return prompts


def _check_positive(setting: str, value: int) -> None:
    if value < 1:
        raise SettingError(f"{setting}={value} must be at least 1; raise it.")
