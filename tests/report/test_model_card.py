"""The model card: its metadata, and what it tells of the run."""

import pytest
from huggingface_hub import ModelCard
from made_run import HOSTILE, description

from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.model_card import FILE, model_card, write_model_card

RATES = [[0.0, 0.5, 0.5, 1.0], [0.5, 1.0, 0.5, 1.0]]
EVALUATIONS = [
    EvaluationResult(done, {"mean@1": sum(r) / 4, "pass@1": sum(r) / 4, "pass@2": 0.75}, {"": r})
    for done, r in zip((0, 12), RATES, strict=True)
]
RUN = description(
    methods={"algo": "gspo", "exploration": "neighbor"}, model="org/base", data="org/problems:main@train",
    hub_data=["org/problems"], changed={"algo": "gspo", "data.path": "/home/me/secret/rows.json"},
)  # fmt: skip


def card(run=RUN, name=None, base=None, evaluations=EVALUATIONS):
    return model_card(name, base, run, evaluations, 12)


def test_the_metadata_that_the_hub_reads():
    assert card().data.to_dict() == {
        "base_model": "org/base",
        "datasets": ["org/problems"],
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["ngrpo", "reinforcement-learning", "gspo", "neighbor"],
    }


@pytest.mark.parametrize("model", ["demo", "/models/base", "a folder/base"])
def test_a_model_of_this_machine_is_no_base_model_on_the_hub(model):
    assert "base_model" not in card(description(model=model)).data.to_dict()
    assert "/models" not in card(description(model=model)).content


def test_the_licence_is_that_of_the_base_models_card(tmp_path):
    told = tmp_path / "README.md"
    told.write_text("---\nlicense: other\nlicense_name: own\nlicense_link: https://example.org\n---\n")
    assert {"license": "other", "license_name": "own", "license_link": "https://example.org"}.items() <= card(
        base=told
    ).data.to_dict().items()


@pytest.mark.parametrize("text", ["no metadata", "---\n[}\n---\n", "---\nlicense: 3\n---\n", "---\n- a\n---\n", "\0"])
def test_a_base_model_that_tells_no_licence(text, tmp_path):
    (tmp_path / "README.md").write_text(text)
    assert "license" not in card(base=tmp_path / "README.md").data.to_dict()


def test_evaluations_have_intervals():
    text = card().content
    assert "| problems | metric | iteration 0 | iteration 12 |" in text
    row = next(line for line in text.splitlines() if "mean@1" in line)
    assert row.startswith("| held out | mean@1 | 0.500 [0.")
    assert "| 0.750 [0." in row
    assert "pass@1" not in text
    assert "|\n\n|" not in text  # the tables' lines stand together


def test_only_evaluations_up_to_the_checkpoint_count(tmp_path):
    write_model_card(tmp_path, None, None, RUN, EVALUATIONS, 10)
    assert "iteration 12" not in (tmp_path / FILE).read_text()


def test_what_was_trained_and_how_it_is_loaded():
    text = card(name="user/name").content
    assert "# user/name" in text
    assert text.count('"user/name"') == 3
    for told in ("seed | 3", "commit | 0123456789ab", "software | torch 2.13", "strategy | `mine.Own(rate=0.1)`"):
        assert f"| {told} |" in text
    assert "| `algo` | `gspo` |" in text
    assert "| `data.path` | `.../rows.json` |" in text


@pytest.mark.parametrize("hostile", [*HOSTILE, "a|b`c", "two\nlines"])
def test_no_value_ends_its_cell(hostile):
    text = card(description(changed={"x": hostile}, strategy=hostile)).content
    (row,) = (line for line in text.splitlines() if line.startswith("| `x` |"))
    assert row.replace("\\|", "").count("|") == 3
    assert row.count("`") == 4


def test_a_run_without_a_description_has_a_card_that_loads(tmp_path):
    write_model_card(tmp_path, None, None, None, [], 3)
    text = ModelCard.load(tmp_path / FILE).text
    assert "## How to load" in text
    assert "## Training" not in text
    assert "## Evaluation" not in text
