"""Embeddings that scale their rows, as Gemma 3's does, and strategies that take the rows as they lie in the table."""

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import ModelSource

_ROWS = 8


def check_rows(source: ModelSource, exploration: Exploration) -> None:
    """Refuses what `check_embedding_scale` does, without the model's weights.

    Raises:
        SettingError: see there.
    """
    if not exploration.reads_embedding:
        return
    with torch.device("meta"):
        lm = AutoModelForCausalLM.from_config(source.config(), trust_remote_code=source.trust_remote_code)
    check_embedding_scale(lm, exploration, source.path)


@torch.no_grad()
def check_embedding_scale(lm: PreTrainedModel, exploration: Exploration, path: str) -> None:
    """Refuses a strategy whose vectors, or densities, would be those of a table that the model scales before use.

    Args:
        lm: not sharded yet; of one on the meta device the class of the embedding tells.
        exploration: of the rollouts.
        path: of the model, for the message.

    Raises:
        SettingError: the strategy reads the table, and the model feeds something else than its rows.
    """
    if not exploration.reads_embedding:
        return
    if not _feeds_rows(lm.get_input_embeddings()):
        raise SettingError(
            f"exploration={type(exploration).__name__} makes vectors of the rows of the embedding table, and "
            f"model.path={path} scales them before it uses them; choose a strategy of token ids and weights, such as "
            "exploration=neighbor, or another model."
        )


def _feeds_rows(embedding: nn.Module) -> bool:
    table = embedding.weight
    assert isinstance(table, Tensor)
    if table.is_meta:
        return type(embedding).forward is nn.Embedding.forward
    ids = torch.arange(min(_ROWS, len(table)), device=table.device)
    return torch.equal(embedding(ids), table[ids])
