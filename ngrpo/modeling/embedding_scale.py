"""Embeddings that scale their rows, as Gemma 3's does, and strategies that take the rows as they lie in the table."""

import torch
from transformers import PreTrainedModel

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration

_ROWS = 8


@torch.no_grad()
def check_embedding_scale(lm: PreTrainedModel, exploration: Exploration, path: str) -> None:
    """Refuses a strategy whose vectors, or densities, would be those of a table that the model scales before use.

    Args:
        lm: not sharded yet.
        exploration: of the rollouts.
        path: of the model, for the message.

    Raises:
        SettingError: the strategy reads the table, and the model feeds something else than its rows.
    """
    if not exploration.reads_embedding:
        return
    embedding = lm.get_input_embeddings()
    ids = torch.arange(min(_ROWS, embedding.weight.shape[0]), device=embedding.weight.device)
    if not torch.equal(embedding(ids), embedding.weight[ids]):
        raise SettingError(
            f"exploration={type(exploration).__name__} makes vectors of the rows of the embedding table, and "
            f"model.path={path} scales them before it uses them; choose a strategy of token ids and weights, such as "
            "exploration=neighbor, or another model."
        )
