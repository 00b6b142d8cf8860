"""The table of nearest rows of the input embedding: built in blocks, cached on disk."""

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.utils.atomic_write import apply_umask

log = logging.getLogger(__name__)

_BLOCK_ELEMENTS = 1 << 26
"""Similarities held at once: 512 MiB of float64."""

_CACHED_TABLES = 64
"""Newest tables kept on disk; a run with `refresh_every` writes one a refresh."""

_UNTRAINED_NORM = 0.2
"""Rows shorter than this fraction of the median row count as never trained."""

_UNTRAINED_COSINE = 0.95
"""So do rows this close to a padded or special row: with a tied head, never-trained rows all drift the same way."""


def _cosine(rows: Tensor, table: Tensor) -> Tensor:
    return _unit(rows) @ _unit(table).T


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=-1, keepdim=True).clamp_min(1e-12)


def _dot(rows: Tensor, table: Tensor) -> Tensor:
    return rows @ table.T


def _l2(rows: Tensor, table: Tensor) -> Tensor:
    return 2 * rows @ table.T - rows.square().sum(-1)[:, None] - table.square().sum(-1)[None, :]


def _l1(rows: Tensor, table: Tensor) -> Tensor:
    return -torch.cdist(rows, table, p=1.0)


SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": _cosine,
    "l2": _l2,
    "l1": _l1,
    "dot": _dot,
}
"""s(u, v) for all pairs, [B, d] x [V, d] -> [B, V], larger is nearer."""


def neighbor_table(embedding: Tensor, k: int, metric: str, excluded: Tensor) -> Tensor:
    """Returns each token and its k - 1 nearest rows, from the disk cache where it holds them.

    Args:
        embedding: the input embedding E; [V, d], any float dtype.
        k: size of the mixture, the anchor included.
        metric: a key of `SIMILARITIES`.
        excluded: rows that never become neighbours (they may be anchors); bool [V].

    Returns:
        int32 [V, k] on the embedding's device, the anchor in column 0. Larger similarity first, then smaller id,
        similarities compared in float64 after rounding to 12 decimals.

    Raises:
        SettingError: fewer than k rows may become neighbours.
    """
    candidates = int((~excluded).sum())
    if candidates < k:
        raise SettingError(f"exploration.k={k} exceeds the {candidates} embedding rows that may be mixed; lower it.")
    path = _cache_path(embedding, k, metric, excluded)
    with suppress(FileNotFoundError):  # asked for by opening it, since another process may remove it at any time
        return load_file(path)["neighbors"].to(embedding.device)
    log.info("building the table of %d neighbours of %d embedding rows", k - 1, len(embedding))
    table = build_neighbor_table(embedding, k, metric, excluded)
    _save(path, table)
    return table


def build_neighbor_table(embedding: Tensor, k: int, metric: str, excluded: Tensor) -> Tensor:
    """Computes what `neighbor_table` returns."""
    return nearest_rows(embedding, torch.arange(len(embedding), device=embedding.device), k, metric, excluded)


def nearest_rows(embedding: Tensor, anchors: Tensor, k: int, metric: str, excluded: Tensor) -> Tensor:
    """Returns some rows of the neighbour table, block by block: int32 [A, k] for anchors int64 [A].

    See `neighbor_table` for the rest.
    """
    table = embedding.detach().double()
    out = anchors.int()[:, None].repeat(1, k)
    block = max(1, _BLOCK_ELEMENTS // len(table))
    for start in range(0, len(anchors) if k > 1 else 0, block):
        chosen = anchors[start : start + block]
        similarity = SIMILARITIES[metric](table[chosen], table)
        similarity.mul_(1e12).round_()
        similarity.masked_fill_(excluded[None, :], -torch.inf)
        similarity.scatter_(1, chosen[:, None], -torch.inf)
        for column in range(1, k):
            # argmax returns the first maximum, which is the smaller id among ties; topk promises no order.
            nearest = similarity.argmax(dim=1)
            out[start : start + block, column] = nearest.int()
            similarity.scatter_(1, nearest[:, None], -torch.inf)
    return out


def excluded_rows(embedding: Tensor, vocabulary: Vocabulary, further_ids: Iterable[int] = ()) -> Tensor:
    """Returns the rows that must never become neighbours: bool [V].

    These are padding beyond the tokenizer, special and reserved tokens, ``further_ids``, and rows that were never
    trained: those near the origin, and those in the cluster that padded and special rows lie in.
    """
    table = embedding.detach().float()
    norms = table.norm(dim=-1)
    reserved = torch.arange(len(table), device=table.device) >= vocabulary.size
    reserved[_ids(vocabulary.special_ids, table)] = True
    known = norms[: vocabulary.size]
    # Zero rows stay out of the median: they may be the majority (unused byte tokens of a small vocabulary).
    untrained = norms <= _UNTRAINED_NORM * known[known > 0].median()
    clustered = _near_any(table, table[reserved & ~untrained])
    excluded = reserved | untrained | clustered
    excluded[_ids(further_ids, table)] = True
    return excluded


def _near_any(rows: Tensor, references: Tensor) -> Tensor:
    """Says which rows are within the cosine of a never-trained row of any reference: [V, d] x [B, d] -> bool [V].

    By blocks of references: most rows are reserved where a tokenizer is much smaller than its model's vocabulary.
    """
    near = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    for block in torch.split(references, max(1, _BLOCK_ELEMENTS // len(rows))):
        near |= (_cosine(rows, block) > _UNTRAINED_COSINE).any(dim=-1)
    return near


def _ids(numbers: Iterable[int], table: Tensor) -> Tensor:
    inside = [number for number in numbers if number < len(table)]
    return torch.tensor(inside, dtype=torch.long, device=table.device)


def _cache_path(embedding: Tensor, k: int, metric: str, excluded: Tensor) -> Path:
    digest = hashlib.blake2b(f"v1 {k} {metric} {tuple(embedding.shape)} {embedding.dtype}".encode(), digest_size=16)
    for tensor in (embedding.detach(), excluded):
        digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
    root = Path(os.environ.get("NGRPO_CACHE", Path.home() / ".cache" / "ngrpo"))
    return root / "neighbors" / f"{digest.hexdigest()}.safetensors"


def _save(path: Path, table: Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    os.close(handle)
    save_file({"neighbors": table.cpu().contiguous()}, temporary)
    apply_umask(Path(temporary))
    os.replace(temporary, path)
    others = (other for other in path.parent.glob("*.safetensors") if other != path)
    for old in sorted(others, key=_written, reverse=True)[_CACHED_TABLES - 1 :]:
        old.unlink(missing_ok=True)


def _written(file: Path) -> float:
    """Returns when a file was written; 0 if another process has just removed it."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0
