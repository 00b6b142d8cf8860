"""Sample rollouts as a table."""

from typing import Any

from lightning import Callback, LightningModule, Trainer

from ngrpo.errors import SettingError
from ngrpo.loggers.media import Table
from ngrpo.loggers.media_adapters import log_media
from ngrpo.report.token_texts import token_texts
from ngrpo.types.experience import Experience
from ngrpo.types.problems import PromptBatch
from ngrpo.types.rollouts import Rollout
from ngrpo.utils.sanitize import markdown_literal

COLUMNS = ("question", "answer", "response", "reward", "verdict", "mixed positions")


class RolloutReport(Callback):
    """Writes the first rollouts of every few iterations, mixed positions in bold brackets.

    Args:
        tokenizer: a transformers tokenizer.
        every: iterations between reports.
        rollouts: rollouts a report.
    """

    def __init__(self, tokenizer: Any, every: int = 10, rollouts: int = 4) -> None:
        if every < 1 or rollouts < 1:
            raise SettingError(
                f"callbacks.rollout_report.every={every} and rollouts={rollouts} must be 1 or more; set "
                "callbacks.rollout_report=null to write no samples."
            )
        self.tokenizer = tokenizer
        self.every = every
        self.rollouts = rollouts

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Writes on rank 0."""
        if batch.iteration % self.every or not trainer.is_global_zero:
            return
        log_media(trainer, {"rollouts": table(self.tokenizer, batch.experience, self.rollouts)}, batch.iteration)


def table(tokenizer: Any, experience: Experience, count: int) -> Table:
    """Returns the first rollouts, one a row, with the number of their mixed positions."""
    rewards = experience.rewards.flatten().tolist()
    rows = []
    for index, rollout in enumerate(experience.rollouts[:count]):
        problem = experience.prompts[index // experience.group_size].problem
        response = "".join(token_texts(tokenizer, rollout.response_ids.tolist()))
        verdict = str(experience.scores[index].status)
        mixed = len(rollout.mixture.positions)
        rows.append((problem.question, str(problem.answer), response, rewards[index], verdict, mixed))
    return Table(COLUMNS, rows, report(tokenizer, experience, count))


def report(tokenizer: Any, experience: Experience, count: int) -> str:
    """Returns Markdown: question, reference, and each response with its reward."""
    blocks = []
    rewards = experience.rewards.flatten().tolist()
    for index in range(min(count, len(experience.rollouts))):
        problem = experience.prompts[index // experience.group_size].problem
        score = experience.scores[index]
        blocks.append(
            f"**{markdown_literal(problem.question)}** (answer {markdown_literal(problem.answer)})\n\n"
            f"reward {rewards[index]:g}, {score.status}: {marked(tokenizer, experience.rollouts[index])}"
        )
    return "\n\n---\n\n".join(blocks)


def marked(tokenizer: Any, rollout: Rollout) -> str:
    """Returns the response with each mixed position as ``**[anchor|neighbour|...]**`` (without ids: the token)."""
    start = len(rollout.prompt_ids)
    mixtures = dict(zip((rollout.mixture.positions - start).tolist(), rollout.mixture.record.ids.tolist(), strict=True))
    texts = token_texts(tokenizer, rollout.response_ids.tolist())
    shown = []
    for place, token in enumerate(rollout.response_ids.tolist()):
        if place in mixtures:
            names = (tokenizer.decode([number]).strip() for number in mixtures[place] or [token])
            shown.append(f" **[{'|'.join(map(markdown_literal, names))}]**")
        else:
            shown.append(markdown_literal(texts[place]))
    return "".join(shown)
