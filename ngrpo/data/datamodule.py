"""The data module: training stream and evaluation prompts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_warn
from transformers import PreTrainedTokenizerBase

from ngrpo.data.chat import PromptBuilder
from ngrpo.data.chat_template import ChatFormat
from ngrpo.data.curriculum import Curriculum, EveryProblem
from ngrpo.data.evaluation_prompts import evaluation_fingerprints, evaluation_source, first_prompts
from ngrpo.data.loader import PromptStream
from ngrpo.data.prompt_source import PromptSource
from ngrpo.data.settings import SourceSettings, training_sources
from ngrpo.data.sources import DataPath, ProblemSource, open_source
from ngrpo.data.sources.problem_text import check_text
from ngrpo.distributed.collectives import ranks
from ngrpo.errors import SettingError
from ngrpo.types.problems import Prompt


class PromptDataModule(LightningDataModule):
    """Prompts for training and evaluation; opens its sources and builds the evaluation prompts at once.

    Args:
        tokenizer: the model's tokenizer.
        prompts_per_batch: prompts of one training iteration over all ranks.
        seed: of the order of the training rows.
        path: training problems, see `open_source`; None for a mixture.
        sources: a mixture: what to train on by name, each with its ``path``, its ``weight`` and whatever else differs
            from the settings here, see `SourceSettings`.
        eval_path: evaluation problems; None takes the held-out part for the demo, nothing otherwise.
        eval_problems: the most evaluation problems to use, from the first row on.
        max_prompt_tokens: rows with longer prompts are excluded.
        question_field: field of the question in files and hub data sets: text, or a list of messages.
        answer_field: field of the reference answer.
        solution_field: field in whose last box the answer is where there is none.
        difficulty_field: field of the declared difficulty.
        min_difficulty: easier training problems are excluded.
        max_difficulty: harder training problems are excluded.
        keep_fields: further fields of the rows, which rewards get by name.
        drop_duplicates: exclude training problems that occur before, in the same source or another in memory.
        drop_eval_overlap: exclude training problems that are among the rows of the evaluation data.
        curriculum: which problems are trained on when; None for all at any time.
        instruction: appended to every question; None takes the source's own, ``""`` appends nothing.
        system_prompt: system message; None for none.
        benchmarks: prompts of the benchmarks that the run is evaluated on, by name; part of the evaluation data.
        template_args: variables of the chat template, such as ``enable_thinking``; see `ChatFormat`.
        template_date: the day, as 2026-01-31, for templates that ask for the date; None for today.
        plain_prompts: the bare question is a prompt where the tokenizer has no chat template; else such a tokenizer is
            refused (`ngrpo.entrypoints.input_validation.check_template`).

    Raises:
        SettingError: a setting is out of range, or a source cannot be opened or has no usable row.
    """

    def __init__(
        self,
        *,
        tokenizer: PreTrainedTokenizerBase,
        prompts_per_batch: int,
        seed: int,
        path: DataPath | None = "demo",
        sources: Mapping[str, Mapping[str, Any]] | None = None,
        eval_path: DataPath | None = None,
        eval_problems: int = 200,
        max_prompt_tokens: int = 1024,
        question_field: str = "problem",
        answer_field: str = "answer",
        solution_field: str | None = None,
        difficulty_field: str = "difficulty",
        min_difficulty: float | None = None,
        max_difficulty: float | None = None,
        keep_fields: Sequence[str] = (),
        drop_duplicates: bool = True,
        drop_eval_overlap: bool = True,
        curriculum: Curriculum | None = None,
        instruction: str | None = None,
        system_prompt: str | None = None,
        template_args: Mapping[str, Any] | None = None,
        template_date: str | None = None,
        benchmarks: Mapping[str, Sequence[Prompt]] | None = None,
        plain_prompts: bool = False,
    ) -> None:
        super().__init__()
        _check_positive("prompts_per_batch", prompts_per_batch)
        _check_positive("eval_problems", eval_problems)
        _check_positive("max_prompt_tokens", max_prompt_tokens)
        check_text("data.instruction", instruction)
        check_text("data.system_prompt", system_prompt)
        self.tokenizer = tokenizer
        self.prompts_per_batch = prompts_per_batch
        self.seed = seed
        self.max_prompt_tokens = max_prompt_tokens
        self.instruction = instruction
        self.chat = ChatFormat(system_prompt, template_args or {}, template_date)
        self.curriculum = curriculum or EveryProblem()
        self._drop_duplicates = drop_duplicates
        self._stream: PromptStream | None = None
        common = SourceSettings(
            path,
            question_field=question_field,
            answer_field=answer_field,
            solution_field=solution_field,
            difficulty_field=difficulty_field,
            min_difficulty=min_difficulty,
            max_difficulty=max_difficulty,
            keep_fields=tuple(keep_fields),
        )
        settings = training_sources(common, sources)
        self.eval_source = evaluation_source(eval_path, common)
        self._eval_prompts: list[Prompt] = []
        if self.eval_source is not None:
            self._eval_prompts = first_prompts(self.eval_source, self._builder(self.eval_source), eval_problems)
        evaluated = evaluation_fingerprints(self.eval_source, benchmarks or {}) if drop_eval_overlap else frozenset()
        seen: set[int] = set()
        self.sources = {where: self._open(where, one, evaluated, seen) for where, one in settings.items()}
        self._weights = [one.weight for one in settings.values()]

    def _open(self, where: str, settings: SourceSettings, evaluated: frozenset[int], seen: set[int]) -> PromptSource:
        assert settings.path is not None
        setting = f"{where}.path"
        source = open_source(settings.path, "train", settings.fields(self.curriculum.needs_difficulty), setting)
        if source.endless and self.curriculum.needs_epochs:
            raise SettingError(
                f"data.curriculum={type(self.curriculum).__name__} does nothing on {setting}={settings.path}, whose"
                " problems never come twice; take other data, or data/curriculum=every_problem."
            )
        # Generated problems never end, and so would what is remembered of them; train and held-out ones never overlap.
        row_filter = settings.row_filter() if source.endless else settings.row_filter(evaluated, self._drop_duplicates)
        prompts = PromptSource(source, self._builder(source), row_filter, seen, setting)
        if prompts.control_text:
            rank_zero_warn(
                f"{setting}={settings.path}: {prompts.control_text} questions hold the text of control tokens; it is"
                " encoded as text"
            )
        return prompts

    @property
    def identity(self) -> str:
        """Names the training problems, wherever they lie."""
        return ", ".join(source.identity for source in self.sources.values())

    def train_dataloader(self) -> PromptStream:
        """Return this rank's stream."""
        self._stream = PromptStream(
            list(zip(self.sources.values(), self._weights, strict=True)),
            seed=self.seed,
            prompts_per_batch=self.prompts_per_batch,
            rank=ranks().data_rank,
            world_size=ranks().data_size,
            curriculum=self.curriculum,
        )
        return self._stream

    def eval_prompts(self) -> list[Prompt]:
        """Return the evaluation prompts, all of them on every rank."""
        return self._eval_prompts

    @property
    def rows_left_out(self) -> dict[str, int]:
        """Training rows that cannot be used, by reason: of all rows of a file, of those met so far of a stream."""
        if self._stream is not None:
            return dict(self._stream.rows_left_out)
        return dict(sum((source.excluded or Counter() for source in self.sources.values()), Counter[str]()))

    def _builder(self, source: ProblemSource) -> PromptBuilder:
        instruction = source.instruction if self.instruction is None else self.instruction
        return PromptBuilder(self.tokenizer, self.max_prompt_tokens, instruction, self.chat)


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise SettingError(f"data.{name}={value} must be at least 1; raise it.")
