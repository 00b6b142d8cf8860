"""verl's own batch and engine classes, on a CPU, with records in the batch."""

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("verl", reason="verl is not installed: pip install verl==0.9.1 in an environment of its own")
from made_models import tiny_config, tiny_model  # noqa: E402
from made_rollouts import rollout  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.utils import tensordict_utils as tu  # noqa: E402
from verl.workers.engine.fsdp import transformer_impl  # noqa: E402
from verl.workers.engine.utils import prepare_micro_batches  # noqa: E402

from ngrpo.exploration.neighbor import NeighborMixing  # noqa: E402
from ngrpo.modeling.attention import IMPLEMENTATION  # noqa: E402
from ngrpo.modeling.packing import pack  # noqa: E402
from ngrpo.modeling.policy import ScoringModel  # noqa: E402
from ngrpo.plugins.verl import FIELD, fields, packed  # noqa: E402

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


def test_a_record_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1 has 3 tokens, and its record 4"):
        packed([fields(r, STRATEGY)[FIELD] for r in ROLLOUTS[:2]], [7, 3])


def test_the_engine_computes_this_projects_log_probs(monkeypatch: pytest.MonkeyPatch) -> None:
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
