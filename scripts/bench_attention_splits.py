"""Time of FlashAttention 3 in one layer of a decode step, with each context in one part or in up to 32.

    python scripts/bench_attention_splits.py --json attention_splits.json

What `ngrpo.rollout.vllm.private.bound_splits` goes by. The passes are captured, over as many layers as make a cache
that no L2 holds; ``--rows``, ``--longest`` and ``--heads`` choose other shapes.
"""

import argparse
import json
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.errors import RunError
from ngrpo.rollout.vllm.versions import installed_version

HEAD, PAGE = 128, 16
"""Numbers of a head, and tokens of a page of the cache."""

CACHE_BYTES = 24 * 2**30
MOST_LAYERS = 28
REPLAYS = 3


class Shape(NamedTuple):
    """A decode step's attention.

    Attributes:
        query_heads: of each row.
        kv_heads: of each row.
        rows: contexts.
        longest: tokens of the longest context.
        contexts: how long the others are, a key of `CONTEXTS`.
    """

    query_heads: int
    kv_heads: int
    rows: int
    longest: int
    contexts: str


def main() -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", nargs="+", default=["12/2", "28/4"], help="query heads / key-value heads")
    parser.add_argument("--rows", nargs="+", type=whole(1), default=[8, 32, 64, 96, 128, 192, 256])
    parser.add_argument("--longest", nargs="+", type=whole(PAGE), default=[1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise RunError("scripts/bench_attention_splits.py needs a GPU of NVIDIA's Hopper generation.")
    measured = []
    for heads in arguments.heads:
        query, kv = map(int, heads.split("/"))
        cache = Cache(kv)
        for rows, longest, contexts in product(arguments.rows, arguments.longest, CONTEXTS):
            shape = Shape(query, kv, rows, longest, contexts)
            if cache.layers(shape):
                one, many = (microseconds(shape, cache, splits) for splits in (1, 32))
                print(f"{shape}: {one:.1f} µs in one part, {many:.1f} µs in up to 32, {one / many:.2f}")
                measured.append([*shape, round(one, 1), round(many, 1)])
        del cache
        torch.cuda.empty_cache()
    if arguments.json:
        card, date = torch.cuda.get_device_name(), time.strftime("%Y-%m-%d")
        columns = [*Shape._fields, "one_us", "up_to_32_us"]
        made = {"card": card, "date": date, "vllm": installed_version(), "columns": columns, "rows": measured}
        arguments.json.write_text(json.dumps(made, indent=1) + "\n")


def equal(rows: int, longest: int) -> Tensor:
    """All contexts are the longest."""
    return torch.full((rows,), longest)


def uniform(rows: int, longest: int) -> Tensor:
    """Lengths between an eighth of the longest and all of it."""
    return torch.randint(longest // 8, longest, (rows,), generator=torch.Generator().manual_seed(0))


def one_long(rows: int, longest: int) -> Tensor:
    """One context is the longest, the others have an eighth of it."""
    lengths = equal(rows, longest // 8)
    lengths[rows // 3] = longest
    return lengths


def tenth_long(rows: int, longest: int) -> Tensor:
    """A tenth of the contexts are the longest, the others have an eighth of it."""
    lengths = equal(rows, longest // 8)
    lengths[::10] = longest
    return lengths


CONTEXTS: dict[str, Callable[[int, int], Tensor]] = {
    "equal": equal,
    "uniform": uniform,
    "one long": one_long,
    "tenth long": tenth_long,
}


class Cache:
    """Keys and values in pages.

    Args:
        kv_heads: of each token.
    """

    def __init__(self, kv_heads: int) -> None:
        self.pages = CACHE_BYTES // (2 * PAGE * kv_heads * HEAD * 2)
        self.keys, self.values = (
            torch.zeros(self.pages, PAGE, kv_heads, HEAD, dtype=torch.bfloat16, device="cuda") for _ in range(2)
        )

    def layers(self, shape: Shape) -> int:
        """Returns how many layers of a shape it holds."""
        return min(MOST_LAYERS, self.pages // (shape.rows * (shape.longest // PAGE)))

    def tables(self, shape: Shape) -> Tensor:
        """Returns the pages of each layer and row, none twice; int32 [layers, R, pages]."""
        each = (self.layers(shape), shape.rows, shape.longest // PAGE)
        order = torch.randperm(each[0] * each[1] * each[2], device="cuda", dtype=torch.int32)
        return order.view(each)


def microseconds(shape: Shape, cache: Cache, splits: int) -> float:
    """Returns the time of one layer."""
    from vllm.vllm_flash_attn import flash_attn_varlen_func, get_scheduler_metadata

    rows, longest = shape.rows, shape.longest
    lengths = CONTEXTS[shape.contexts](rows, longest).int().cuda()
    queries = torch.randn(rows, shape.query_heads, HEAD, dtype=torch.bfloat16, device="cuda")
    out, starts = torch.empty_like(queries), torch.arange(rows + 1, dtype=torch.int32, device="cuda")
    tables = cache.tables(shape)
    schedule = get_scheduler_metadata(
        batch_size=rows,
        max_seqlen_q=1,
        max_seqlen_k=longest,
        num_heads_q=shape.query_heads,
        num_heads_kv=shape.kv_heads,
        headdim=HEAD,
        cache_seqlens=lengths,
        qkv_dtype=torch.bfloat16,
        cu_seqlens_q=starts,
        page_size=PAGE,
        causal=True,
        window_size=(-1, -1),
        num_splits=splits,
    )

    def run() -> None:
        for table in tables:
            flash_attn_varlen_func(
                q=queries,
                k=cache.keys,
                v=cache.values,
                out=out,
                cu_seqlens_q=starts,
                max_seqlen_q=1,
                seqused_k=lengths,
                max_seqlen_k=longest,
                softmax_scale=HEAD**-0.5,
                causal=True,
                window_size=[-1, -1],
                block_table=table,
                scheduler_metadata=schedule,
                fa_version=3,
                num_splits=splits,
            )

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / REPLAYS / len(tables) * 1e3


if __name__ == "__main__":
    run_main(main)
