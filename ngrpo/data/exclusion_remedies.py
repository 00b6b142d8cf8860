"""Remedies for excluded rows, and the error for data without a usable row."""

from collections.abc import Mapping

from ngrpo.errors import SettingError
from ngrpo.types.problems import Reason

# A row that the curriculum holds back is not excluded: its time may come.
_REMEDIES: dict[Reason | str, str] = {
    "missing_question": "point data.question_field at a filled field",
    "question_not_text": "point data.question_field at a field of text, or of messages",
    "not_a_conversation": "give messages with role and content, the last one the user's",
    "refused_by_template": "give conversations that the chat template takes",
    "invalid_characters": "write the data as UTF-8, without halves of surrogate pairs",
    "control_tokens": "take the text of the tokenizer's control tokens out of the questions",
    "missing_answer": "point data.answer_field, or data.solution_field, at a filled field",
    "answer_not_scalar": "point data.answer_field at a field of text or numbers",
    "no_box_in_solution": "point data.answer_field at a filled field",
    "missing_difficulty": "point data.difficulty_field at a field of numbers",
    "too_easy": "lower data.min_difficulty",
    "too_hard": "raise data.max_difficulty",
    "duplicate": "set data.drop_duplicates=false",
    "in_evaluation": "set data.drop_eval_overlap=false, or another data.eval_path",
    "prompt_too_long": "raise data.max_prompt_tokens",
    "held_back": "let data.curriculum admit more",
}


def no_usable_row(setting: str, identity: str, excluded: Mapping[str, int]) -> SettingError:
    """Return the error for a source of which nothing can be used, with the remedy for the most frequent reason."""
    counted = sorted(((reason, count) for reason, count in excluded.items() if count), key=lambda pair: -pair[1])
    reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(counted)) or "it is empty"
    remedy = _REMEDIES[counted[0][0]] if counted else "give data with rows"
    total = sum(count for _, count in counted)
    return SettingError(f"{setting}={identity} has no usable row among {total} ({reasons}); {remedy}.")
