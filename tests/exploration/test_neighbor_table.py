"""The neighbour table against the worked examples and a search in pure Python; its cache."""

import json
import os
from pathlib import Path

import pytest
import torch
from places import ROOT
from safetensors.torch import load_file
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration import neighbor_table as module
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.neighbor_table import SIMILARITIES, build_neighbor_table, excluded_rows, neighbor_table
from ngrpo.exploration.vocabulary import Vocabulary

VECTORS = json.loads((ROOT / "tests/vectors.json").read_text())
METRICS = ["cosine", "l2", "l1", "dot"]


def none_excluded(rows: int) -> Tensor:
    return torch.zeros(rows, dtype=torch.bool)


def similarity(u: list[float], v: list[float], metric: str) -> float:
    """The definition of each similarity, element by element."""
    dot = sum(a * b for a, b in zip(u, v, strict=True))
    norms = [max(sum(a * a for a in row) ** 0.5, 1e-12) for row in (u, v)]
    return {
        "cosine": dot / (norms[0] * norms[1]),
        "l2": -sum((a - b) ** 2 for a, b in zip(u, v, strict=True)),
        "l1": -sum(abs(a - b) for a, b in zip(u, v, strict=True)),
        "dot": dot,
    }[metric]


def slow_table(rows: list[list[float]], k: int, metric: str, excluded: list[bool]) -> list[list[int]]:
    out = []
    for anchor, u in enumerate(rows):
        candidates = [v for v in range(len(rows)) if v != anchor and not excluded[v]]
        candidates.sort(key=lambda v: (-round(similarity(u, rows[v], metric), 12), v))
        out.append([anchor, *candidates[: k - 1]])
    return out


@pytest.fixture
def embedding() -> Tensor:
    """60 random rows, some of them twice (ties), one of them zero."""
    rows = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    rows[30:36] = rows[:6]
    rows[50] = 0
    return rows


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts how often a table is computed."""
    calls: list[int] = []

    def counted(embedding: Tensor, k: int, metric: str, excluded: Tensor) -> Tensor:
        calls.append(k)
        return build_neighbor_table(embedding, k, metric, excluded)

    monkeypatch.setattr(module, "build_neighbor_table", counted)
    return calls


@pytest.mark.parametrize("metric", METRICS)
def test_similarities_golden(metric: str) -> None:
    golden = VECTORS["neighbor_table"]
    rows = torch.tensor(golden["inputs"]["E"], dtype=torch.float64)
    expected = torch.tensor(golden["outputs"][metric]["similarity"], dtype=torch.float64)
    torch.testing.assert_close(SIMILARITIES[metric](rows, rows), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("neighbours", "key"), [(1, "m1"), (2, "m2"), (5, "m5_full_order")])
def test_table_golden(metric: str, neighbours: int, key: str) -> None:
    golden = VECTORS["neighbor_table"]
    rows = torch.tensor(golden["inputs"]["E"], dtype=torch.float64)
    table = build_neighbor_table(rows, neighbours + 1, metric, none_excluded(len(rows)))
    assert table[:, 0].tolist() == list(range(len(rows)))
    assert table[:, 1:].tolist() == golden["outputs"][metric][f"neighbours_{key}"]
    assert table.dtype == torch.int32


@pytest.mark.parametrize("metric", METRICS)
def test_zero_row_golden(metric: str) -> None:
    golden = VECTORS["neighbor_table_zero_row"]
    rows = torch.tensor(golden["inputs"]["E"], dtype=torch.float64)
    table = build_neighbor_table(rows, 4, metric, none_excluded(len(rows)))
    assert table[:, 1:].tolist() == golden["outputs"][metric]


@pytest.mark.parametrize("metric", METRICS)
def test_table_equals_a_slow_search_and_leaves_excluded_rows_out(metric: str, embedding: Tensor) -> None:
    excluded = none_excluded(60)
    excluded[[2, 17, 35, 50, 59]] = True
    table = build_neighbor_table(embedding, 6, metric, excluded)
    rows = embedding.double().tolist()
    assert table.tolist() == slow_table(rows, 6, metric, excluded.tolist())
    # Excluded rows stay valid anchors.
    assert table[:, 0].tolist() == list(range(60))
    assert not torch.isin(table[:, 1:], excluded.nonzero()[:, 0]).any()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("block_rows", [1, 7])
def test_blocks_do_not_change_the_table(
    metric: str, block_rows: int, embedding: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build_neighbor_table(embedding, 5, metric, none_excluded(60))
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", 60 * block_rows)
    assert torch.equal(build_neighbor_table(embedding, 5, metric, none_excluded(60)), whole)


def test_k_1_is_the_anchor_alone(embedding: Tensor) -> None:
    assert build_neighbor_table(embedding, 1, "cosine", none_excluded(60)).tolist() == [[i] for i in range(60)]


def test_excluded_rows_are_padding_special_further_and_untrained() -> None:
    rows = torch.eye(12)
    rows[3] *= 0.19
    rows[4] *= 0.21
    rows[10] *= 5
    vocabulary = Vocabulary(size=10, special_ids=frozenset({1, 7, 99}), tokens={})
    assert excluded_rows(rows, vocabulary, (5, 99)).nonzero()[:, 0].tolist() == [1, 3, 5, 7, 10, 11]


def test_rows_in_the_cluster_of_padded_and_special_rows_are_excluded() -> None:
    """Never-trained rows drift the same way; rows near each other, further ids or zero rows do not."""
    rows = torch.eye(10)
    rows[2] = rows[9] + 0.3 * rows[2]  # cosine 0.958 to the padded row
    rows[3] = rows[9] + 0.4 * rows[3]  # cosine 0.928
    rows[4] = 2 * rows[1] + 0.1 * rows[4]  # along the special row
    rows[6] = rows[5]
    rows[8] = 0
    vocabulary = Vocabulary(size=8, special_ids=frozenset({1}), tokens={})
    assert excluded_rows(rows, vocabulary, (5,)).nonzero()[:, 0].tolist() == [1, 2, 4, 5, 8, 9]


@pytest.mark.parametrize("block", [1, 3, 7])
def test_rows_near_reserved_ones_are_found_block_by_block(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never all similarities at once: nearly all rows are reserved under a tokenizer of a few."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(40, 2, generator=generator)
    expected = [
        n >= 8 or any(float(torch.cosine_similarity(rows[n], rows[m], dim=0)) > 0.95 for m in range(8, 40))
        for n in range(40)
    ]
    held: list[int] = []
    cosine = module._cosine
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", 40 * block)
    monkeypatch.setattr(module, "_cosine", lambda a, b: held.append(len(a) * len(b)) or cosine(a, b))
    monkeypatch.setattr(module, "_UNTRAINED_NORM", 0.0)
    assert excluded_rows(rows, Vocabulary(8, frozenset(), {})).tolist() == expected
    assert max(held) <= 40 * block
    assert 0 < sum(expected) < 40


def test_nothing_reserved_excludes_nothing() -> None:
    assert not excluded_rows(torch.ones(5, 3), Vocabulary(5, frozenset(), {})).any()


def test_median_counts_known_rows_only() -> None:
    rows = torch.full((9, 2), 1e-6)
    rows[:3] = 1.0
    assert excluded_rows(rows, Vocabulary(3, frozenset(), {})).tolist() == [False] * 3 + [True] * 6


def test_strategy_prepares_the_table_without_excluded_rows(
    make_engine, tiny_vocabulary: Vocabulary, cache_dir: Path
) -> None:
    embedding = make_engine().embedding()
    tables = NeighborMixing(k=4, metric="l2", excluded_ids=(20,)).prepare(embedding, tiny_vocabulary)
    neighbours = set(tables["neighbors"][:, 1:].flatten().tolist())
    assert tables["neighbors"].shape == (len(embedding), 4)
    assert neighbours.isdisjoint({20, *tiny_vocabulary.special_ids, *range(tiny_vocabulary.size, len(embedding))})


def test_second_call_reads_the_disk(embedding: Tensor, cache_dir: Path, builds: list[int]) -> None:
    first = neighbor_table(embedding, 3, "cosine", none_excluded(60))
    second = neighbor_table(embedding.clone(), 3, "cosine", none_excluded(60))
    assert len(builds) == 1
    assert torch.equal(first, second)
    assert second.dtype == torch.int32
    assert len(list(cache_dir.rglob("*.safetensors"))) == 1


def test_whatever_the_table_depends_on_misses_the_cache(embedding: Tensor, cache_dir: Path, builds: list[int]) -> None:
    changed = embedding.clone()
    changed[59, 7] += 1e-3
    one_excluded = none_excluded(60)
    one_excluded[59] = True
    neighbor_table(embedding, 3, "cosine", none_excluded(60))
    neighbor_table(changed, 3, "cosine", none_excluded(60))
    neighbor_table(embedding.bfloat16(), 3, "cosine", none_excluded(60))
    neighbor_table(embedding, 4, "cosine", none_excluded(60))
    neighbor_table(embedding, 3, "dot", none_excluded(60))
    neighbor_table(embedding, 3, "cosine", one_excluded)
    assert len(builds) == 6


def test_cache_keeps_the_newest_tables(embedding: Tensor, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CACHED_TABLES", 2)
    for k in (2, 3, 4, 5):
        neighbor_table(embedding, k, "cosine", none_excluded(60))
    assert len(list(cache_dir.rglob("*.safetensors"))) == 2
    assert not list(cache_dir.rglob("*.tmp"))


def test_a_cached_table_may_be_read_by_whom_the_umask_lets(embedding: Tensor, cache_dir: Path) -> None:
    before = os.umask(0o022)
    try:
        neighbor_table(embedding, 2, "cosine", none_excluded(60))
    finally:
        os.umask(before)
    assert [file.stat().st_mode & 0o777 for file in cache_dir.rglob("*.safetensors")] == [0o644]


def test_the_table_just_written_stays_however_old_its_clock_makes_it(
    embedding: Tensor, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CACHED_TABLES", 1)
    monkeypatch.setattr(module, "_written", lambda file: -1.0)
    for k in (2, 3):
        neighbor_table(embedding, k, "cosine", none_excluded(60))
        (kept,) = cache_dir.rglob("*.safetensors")
        assert load_file(kept)["neighbors"].shape[1] == k


def test_another_process_may_remove_tables_meanwhile(
    embedding: Tensor, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Path.glob
    monkeypatch.setattr(module, "_CACHED_TABLES", 1)
    monkeypatch.setattr(Path, "glob", lambda folder, what: [*found(folder, what), folder / "gone.safetensors"])
    for k in (2, 3):
        neighbor_table(embedding, k, "cosine", none_excluded(60))
    assert len(list(cache_dir.rglob("*.safetensors"))) == 1


def test_k_beyond_the_candidates_is_refused(embedding: Tensor, cache_dir: Path) -> None:
    excluded = ~none_excluded(60)
    excluded[:4] = False
    assert neighbor_table(embedding, 4, "cosine", excluded)[0].tolist()[0] == 0
    with pytest.raises(SettingError, match=r"^exploration\.k=5 exceeds the 4 embedding rows .*\.$"):
        neighbor_table(embedding, 5, "cosine", excluded)


def test_zero_rows_are_excluded_even_when_they_are_the_majority() -> None:
    embedding = torch.zeros(10, 3)
    embedding[:4] = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    excluded = excluded_rows(embedding, Vocabulary(size=9, special_ids=frozenset(), tokens={}))
    assert excluded.tolist() == [False] * 4 + [True] * 6
