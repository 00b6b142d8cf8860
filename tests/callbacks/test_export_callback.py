"""The export at the end of a training, with its model card and its push."""

from types import SimpleNamespace
from weakref import WeakSet

import pytest
import torch
from fake_run import trainer
from huggingface_hub import ModelCard, constants
from made_run import description
from stand_in_hub import TOKEN, stand_in_hub

from ngrpo.callbacks.evaluation import Evaluation
from ngrpo.callbacks.export import Export
from ngrpo.callbacks.rollout import RolloutCallback
from ngrpo.errors import SettingError
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.modeling.policy import ScoringModel
from ngrpo.training.weight_export import WeightExport


@pytest.fixture
def hub(monkeypatch):
    with stand_in_hub() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield served


def run(folder, source, **settings):
    """Ends a training of 12 iterations with two evaluations."""
    export = Export(folder, source, source.tokenizer(), description=description(), **settings)
    rollouts = RolloutCallback(None, None, None)
    rollouts.iterations_done = 12
    evaluation = Evaluation(None, SimpleNamespace(eval_prompts=list), None)
    evaluation.results = [
        EvaluationResult(done, {"mean@1": rate, "pass@1": rate}, {"": [rate]}) for done, rate in ((0, 0.0), (12, 1.0))
    ]
    made = trainer(callbacks=[rollouts, evaluation, export])
    module = SimpleNamespace(weights=WeightExport(ScoringModel(source.load()), lora=None))
    export.on_train_end(made, module)
    export.on_fit_end(made, module)
    return folder / "model"


def test_the_card_lies_beside_the_weights(tiny_source, tmp_path):
    card = ModelCard.load(run(tmp_path, tiny_source) / "README.md")
    assert card.data.library_name == "transformers"
    assert "| held out | mean@1 | 0.000 [0.000, 0.000] | 1.000 [1.000, 1.000] |" in card.text


def test_it_is_pushed_private(hub, tiny_source, tmp_path):
    folder = run(tmp_path, tiny_source, push_to="user/name")
    assert hub.repositories == {"user/name": True}
    assert hub.files["user/name"] == {file.name: file.read_bytes() for file in folder.iterdir()}
    assert 'from_pretrained("user/name")' in (folder / "README.md").read_text()


def test_a_failing_push_loses_nothing_and_tells_how_to_push_again(hub, tiny_source, tmp_path, caplog):
    hub.broken = True
    folder = run(tmp_path, tiny_source, push_to="user/name")
    assert (folder / "model.safetensors").exists()
    assert f"push it again: hf upload user/name {folder} . --private" in caplog.text


def test_a_wrong_name_is_refused_when_it_is_made(tiny_source, tmp_path):
    with pytest.raises(SettingError, match=r"^callbacks\.export\.push_to=name is no name"):
        Export(tmp_path, tiny_source, None, push_to="name")


@pytest.mark.parametrize(("first", "most"), [(True, 5), (False, 1)])
def test_the_first_rank_alone_holds_the_whole_model(first, most, tmp_path, monkeypatch):
    held = WeakSet()

    def weights():
        for number in range(5):
            tensor = torch.zeros(1)
            held.add(tensor)
            yield str(number), tensor
            del tensor
            assert len(held) <= most

    kept = []
    monkeypatch.setattr("ngrpo.callbacks.export.export", lambda source, tokenizer, given, folder: kept.append(given))
    monkeypatch.setattr(Export, "_write_card", lambda *_: None)
    gathering = SimpleNamespace(named_weights=weights, learned_exploration=dict)
    ending = trainer()
    ending.is_global_zero = first
    Export(tmp_path, None, None).on_train_end(ending, SimpleNamespace(weights=gathering))
    assert [len(given.model) for given in kept] == [5] * first
