"""The figures of an evaluation the slow, obvious way: plain Python over the stored rows."""

from collections import Counter
from itertools import combinations
from math import comb, log2

Row = dict


def by_problem(rows: list[Row]) -> list[list[Row]]:
    keys = sorted({row["problem"] for row in rows})
    return [sorted((r for r in rows if r["problem"] == key), key=lambda r: r["sample"]) for key in keys]


def figures(rows: list[Row], ks: list[int]) -> dict[str, float]:
    problems = [one for one in by_problem(rows) if all(r["verdict"] != "unparsable_reference" for r in one)]
    n = len(problems[0])

    def mean(numbers) -> float:
        numbers = list(numbers)
        return sum(numbers) / len(numbers)

    passes = {k: mean(1 - comb(n - solved(one), k) / comb(n, k) for one in problems) for k in ks}
    widths = [log2(b) - log2(a) for a, b in zip(ks, ks[1:], strict=False)]
    heights = [(passes[a] + passes[b]) / 2 for a, b in zip(ks, ks[1:], strict=False)]
    area = sum(w * h for w, h in zip(widths, heights, strict=True)) / sum(widths) if widths else passes[1]
    return {
        f"mean@{n}": mean(solved(one) / n for one in problems),
        **{f"pass@{k}": value for k, value in passes.items()},
        **{f"maj@{k}": mean(majority(one, k) for one in problems) for k in ks if k > 1},
        "pass_area": area,
        "truncated": mean(mean(r["truncated"] for r in one) for one in problems),
        "length": mean(mean(r["length"] for r in one) for one in problems),
    }


def solved(rows: list[Row]) -> int:
    return sum(row["correct"] for row in rows)


def majority(rows: list[Row], k: int) -> float:
    groups = [rows[start : start + k] for start in range(0, len(rows) - k + 1, k)]
    return sum(vote(group) for group in groups) / len(groups)


def vote(rows: list[Row]) -> float:
    names = ["RIGHT" if r["correct"] else "".join(r["answer"].split()) for r in rows if r["answer"] is not None]
    counts = Counter(names)
    if not counts:
        return 0.0
    leaders = [name for name, count in counts.items() if count == max(counts.values())]
    return float("RIGHT" in leaders) / len(leaders)


def best_of_all_subsets(rows: list[Row], k: int) -> float:
    subsets = list(combinations([r["correct"] for r in rows], k))
    return sum(map(any, subsets)) / len(subsets)
