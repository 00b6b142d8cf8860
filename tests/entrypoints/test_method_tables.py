import pytest
from places import ROOT

from ngrpo.entrypoints.method_tables import MethodTable, algorithms, explorations, first_sentence

CONF = ROOT / "conf"


@pytest.fixture(scope="module")
def tables() -> dict[str, MethodTable]:
    return {"exploration": explorations(CONF), "algo": algorithms(CONF)}


def cells(table: MethodTable, name: str) -> dict[str, str]:
    return dict(zip(table.header, next(row for row in table.rows if row[0] == name), strict=True))


@pytest.mark.parametrize("group", ["exploration", "algo"])
def test_every_yaml_is_a_row_with_a_rule(tables: dict[str, MethodTable], group: str) -> None:
    table = tables[group]
    assert [row[0] for row in table.rows] == sorted({p.stem for p in (CONF / group).glob("*.yaml")} - {"base"})
    for row in table.rows:
        assert len(row) == len(table.header)
        assert len(row[1]) > 10
        assert row[2] == "-" or row[2].startswith("arXiv ")


def test_a_strategy_is_described_by_its_class_and_a_preset_by_its_yaml(tables: dict[str, MethodTable]) -> None:
    table = tables["exploration"]
    neighbor, ablation = cells(table, "neighbor"), cells(table, "neighbor_l2")
    assert neighbor["rule"].startswith("With probability rho feed a mixture")
    assert ablation["rule"].startswith("N-GRPO with neighbours by Euclidean distance")
    assert neighbor["paper"] == ablation["paper"] == "arXiv 2606.10768"
    assert "metric=cosine" in neighbor["preset"]
    assert "metric=l2" in ablation["preset"]


def test_an_algorithm_shows_its_parts_and_what_differs_from_their_defaults(tables: dict[str, MethodTable]) -> None:
    table = tables["algo"]
    assert cells(table, "reinforce_pp") == {
        "`algo=`": "reinforce_pp",
        "rule": "REINFORCE++: KL in the token rewards, their sums to the end whitened over the whole batch",
        "paper": "arXiv 2501.03262",
        "advantage": "raw, DiscountedReturns",
        "ratio, clip": "token, clipped_surrogate(low=0.2, high=0.2)",
        "aggregate": "token_mean",
        "KL": "k1 in the reward, 0.01",
    }
    assert cells(table, "nsr")["advantage"] == "by_correctness(wrong=-1.0)"
    assert cells(table, "grpo")["KL"] == "k3, 0.001"
    assert cells(table, "gspo")["KL"] == "-"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GRPO, arXiv 2402.03300: one. Two", "GRPO: one"),
        ("Gate (arXiv 2606.10768), eq. 5 of 1.5B", "Gate, eq"),
        ("Ablation of arXiv 2606.10768.", "Ablation of arXiv 2606.10768"),
        ("p = 0.15 and\n  more (arXiv 2606.10768).", "p = 0.15 and more"),
    ],
)
def test_the_first_sentence_is_shown_without_its_paper(text: str, expected: str) -> None:
    assert first_sentence(text) == expected


def test_cells_survive_markdown() -> None:
    assert MethodTable(("a", "b"), [("x", "1 | <2>")]).markdown() == "| a | b |\n| --- | --- |\n| `x` | 1 \\| &lt;2> |"


def test_a_value_that_goes_by_the_model_is_shown_in_words(tables: dict[str, MethodTable]) -> None:
    assert "schedule_iterations=630 (demo: 40)" in cells(tables["exploration"], "neighbor_annealed")["preset"]
