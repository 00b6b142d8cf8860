"""The evaluation problems of a run: their source, the prompts made of its first rows, and their fingerprints."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from lightning.pytorch.utilities import rank_zero_warn

from ngrpo.data.chat import PromptBuilder
from ngrpo.data.exclusion_remedies import no_usable_row
from ngrpo.data.settings import SourceSettings
from ngrpo.data.source_stream import MAX_ROWS_WITHOUT_PROMPT
from ngrpo.data.sources import DataPath, ProblemSource, open_source
from ngrpo.data.sources.generated import generated_family
from ngrpo.data.sources.problem_text import fingerprint
from ngrpo.types.problems import Excluded, Problem, Prompt


def evaluation_source(path: DataPath | None, common: SourceSettings) -> ProblemSource | None:
    """Opens the evaluation data.

    Args:
        path: ``data.eval_path``; None takes the held-out part of generated problems, nothing otherwise.
        common: the settings of ``data``, whose fields are read here too; no difficulty is required.

    Raises:
        SettingError: it cannot be opened.
    """
    if path is None:
        path = generated_family(common.path)
    if path is None:
        return None
    # Evaluation data may state the answers that training data has in its solutions only.
    fields = replace(common.fields(), difficulty_required=False, solution_required=False)
    return open_source(path, "held_out", fields, "data.eval_path")


def first_prompts(source: ProblemSource, build: PromptBuilder, limit: int) -> list[Prompt]:
    """Returns the prompts of the first rows that can be used, at most ``limit``; warns of excluded ones among them.

    Raises:
        SettingError: there are none.
    """
    prompts: list[Prompt] = []
    excluded: Counter[str] = Counter()
    for row in islice(source.rows(), limit + MAX_ROWS_WITHOUT_PROMPT):
        item = row if isinstance(row, Excluded) else build(row)
        if isinstance(item, Prompt):
            prompts.append(item)
        else:
            excluded[item.reason] += 1
        if len(prompts) == limit:
            break
    if not prompts:
        raise no_usable_row("data.eval_path", source.identity, excluded)
    if excluded:
        rank_zero_warn(f"data.eval_path={source.identity}: rows excluded from the evaluation: {dict(excluded)}")
    return prompts


def evaluation_fingerprints(source: ProblemSource | None, benchmarks: Mapping[str, Sequence[Prompt]]) -> frozenset[int]:
    """Returns those of all evaluation problems, also of those beyond ``eval_problems``, and of the benchmarks'."""
    asked = frozenset(fingerprint(prompt.problem.question) for prompts in benchmarks.values() for prompt in prompts)
    if source is None or source.endless:
        return asked
    return asked | {fingerprint(row.question) for row in source.rows() if isinstance(row, Problem)}
