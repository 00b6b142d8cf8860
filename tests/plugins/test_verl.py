"""verl's own batch and engine classes, on a CPU, with records in the batch."""

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("verl", reason="verl is not installed: pip install verl==0.9.1 in an environment of its own")
from made_models import tiny_config, tiny_model  # noqa: E402
from made_rollouts import rollout  # noqa: E402
from tensordict import NonTensorStack  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template  # noqa: E402
from verl.utils import tensordict_utils as tu  # noqa: E402
from verl.workers.engine.fsdp import transformer_impl  # noqa: E402
from verl.workers.engine.utils import prepare_micro_batches  # noqa: E402

from ngrpo.exploration.neighbor import NeighborMixing  # noqa: E402
from ngrpo.modeling.attention import IMPLEMENTATION  # noqa: E402
from ngrpo.modeling.packing import pack  # noqa: E402
from ngrpo.modeling.policy import ScoringModel  # noqa: E402
from ngrpo.plugins import verl as _plugin  # noqa: E402, F401 (wraps the engine)
from ngrpo.plugins.verl_records import EXTRA, FIELD, fields, packed, records_in  # noqa: E402

STRATEGY = NeighborMixing(k=2)
ROLLOUTS = [
    rollout([5, 6, 7], [8, 9, 10, 11], {4: {12: 0.7, 13: 0.3}, 5: {14: 0.6, 15: 0.4}}, key=1),
    rollout([5, 6], [20, 21], {2: {30: 0.5, 31: 0.5}}, key=2),
    rollout([9], [22, 23, 24], {}, key=3),
    rollout([4, 3, 8], [25, 26], {3: {33: 0.8, 34: 0.2}}, key=4),
]


def batch() -> DataProto:
    """The rollouts in rows of 4 prompt and 5 response tokens, padded at both sides."""
    ids, mask = torch.zeros(2, 4, 9, dtype=torch.long)
    for row, r in enumerate(ROLLOUTS):
        start = 4 - len(r.prompt_ids)
        ids[row, start : start + r.tokens] = torch.cat((r.prompt_ids, r.response_ids))
        mask[row, start : start + r.tokens] = 1
    tensors = {
        "input_ids": ids, "attention_mask": mask, "response_mask": mask[:, 4:], "responses": ids[:, 4:],
        "position_ids": (mask.cumsum(-1) - 1).clamp(min=0),
    }  # fmt: skip
    records = np.empty(4, dtype=object)
    records[:] = [fields(r, STRATEGY)[FIELD] for r in ROLLOUTS]
    return DataProto.from_dict(tensors, non_tensors={FIELD: records, "row": np.arange(4)})


def engine(model: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """verl's engine around a model, without what it starts on GPUs."""
    made = object.__new__(transformer_impl.FSDPEngineWithLMHead)
    made.module, made.use_ulysses_sp, made.pad_to_length = model, False, None
    made._autocast_dtype = torch.float32
    made._get_packed_pad_size = lambda length: 3
    monkeypatch.setattr(transformer_impl, "get_device_name", lambda: "cpu")
    monkeypatch.setattr(transformer_impl, "get_device_id", lambda: "cpu")
    return made


def test_a_record_survives_verls_batches() -> None:
    data = batch()
    data.reorder(torch.tensor([2, 0, 3, 1]))
    whole = DataProto.concat(data.chunk(2))
    for row, kept in zip(whole.non_tensor_batch["row"], whole.non_tensor_batch[FIELD], strict=True):
        for name, tensor in fields(ROLLOUTS[row], STRATEGY)[FIELD].items():
            assert torch.equal(kept[name], tensor)


def test_batches_without_records_are_found_to_have_none() -> None:
    rows = [fields(ROLLOUTS[0], STRATEGY), {"other": 1}]
    assert records_in({"input_ids": torch.zeros(2, 1)}) is None
    assert records_in({EXTRA: [{"other": 1}, {}]}) is None
    assert records_in({EXTRA: rows}) == [rows[0][FIELD], None]


def test_what_verl_fills_a_batch_up_with_has_no_record() -> None:
    r = ROLLOUTS[0]
    prompt, response = r.prompt_ids, r.response_ids
    sample = {"prompts": prompt, "responses": response, EXTRA: fields(r, STRATEGY)}
    sample |= {"input_ids": torch.cat((prompt, response)), "response_mask": torch.ones_like(response)}
    filling, _ = construct_minimal_padding_template(sample, {}, eos_token_id=0)
    kept = {name: value for name, value in filling.items() if name in sample}
    batch = tu.list_of_dict_to_tensordict([sample, kept])
    rows = records_in(batch)
    assert rows is not None
    assert rows[0] is not None
    assert rows[1] is None
    assert packed(rows, batch["input_ids"].offsets().diff().tolist()).tokens.shape == (1, r.tokens + 128)


def test_a_row_without_a_record_saw_its_tokens() -> None:
    records = packed([None, fields(ROLLOUTS[1], STRATEGY)[FIELD], None], [3, 4, 9])
    assert records.mixed().slots.tolist() == [3 + 2]
    assert records.tokens.shape == (1, 16)


def test_a_record_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1 has 3 tokens, and its record 4"):
        packed([fields(r, STRATEGY)[FIELD] for r in ROLLOUTS[:2]], [7, 3])


@pytest.mark.parametrize("newer", [False, True], ids=["DataProto", "transfer queue"])
def test_the_engine_computes_this_projects_log_probs(monkeypatch: pytest.MonkeyPatch, newer: bool) -> None:
    model = tiny_model(tiny_config("qwen2"), "sdpa")
    data = batch()
    data.reorder(torch.tensor([2, 0, 3, 1]))
    mask = data.batch["attention_mask"].bool()

    def nested(name: str) -> torch.Tensor:
        return torch.nested.as_nested_tensor(
            [tensor[shown] for tensor, shown in zip(data.batch[name], mask, strict=True)], layout=torch.jagged
        )

    given = data.to_tensordict()
    for name in ("input_ids", "position_ids"):
        values = nested(name)
        given.pop(name)
        given[name] = values
    if newer:  # further fields stay in one dictionary a row, and what fills a batch up has none
        given.pop(FIELD)
        rows = [r if r.mixture.positions.numel() else None for r in (ROLLOUTS[i] for i in data.non_tensor_batch["row"])]
        given[EXTRA] = NonTensorStack(*({} if r is None else fields(r, STRATEGY) for r in rows))
    settings = {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 2, "temperature": 1.0, "use_fused_kernels": False}
    tu.assign_non_tensor(given, calculate_entropy=False, **settings)
    micro_batches, _ = prepare_micro_batches(given)
    assert len(micro_batches) == 2
    seen = []

    class Stopped(Exception):
        pass

    def outputs(output: Any, **_: Any) -> Any:
        seen.append(output.logits.detach()[0, :-3])
        raise Stopped

    made = engine(model, monkeypatch)
    made.prepare_model_outputs = outputs
    for micro_batch in micro_batches:
        with pytest.raises(Stopped):
            made.forward_step(micro_batch, loss_function=None, forward_only=True)
    logits = torch.cat(seen)
    order = [ROLLOUTS[row] for row in data.non_tensor_batch["row"]]
    lm = tiny_model(tiny_config("qwen2"), IMPLEMENTATION)
    form = pack(order)
    expected = ScoringModel(lm)(form, 1.0, STRATEGY).log_prob
    found = logits[form.scored_rows].log_softmax(-1).gather(-1, form.tokens[form.response_slots][:, None])[:, 0]
    torch.testing.assert_close(found, expected.detach(), atol=1e-5, rtol=1e-5)
