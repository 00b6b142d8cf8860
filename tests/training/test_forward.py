"""Forward passes in microbatches of a budget that may shrink."""

from dataclasses import replace

import pytest
import torch
from made_passes import made_passes
from made_rollouts import rollout

from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel

ROLLOUTS = [rollout([1, 2], [3] * n) for n in (3, 8, 1, 6)]


@pytest.fixture
def model(tiny_source: ModelSource) -> ScoringModel:
    return ScoringModel(tiny_source.load())


def test_a_lowered_budget_is_followed(model: ScoringModel):
    passes = made_passes(model, tokens=100)
    with passes.microbatches(model, ROLLOUTS) as parts:
        assert len(list(parts)) == 1
    passes.budget.tokens = 10
    with passes.microbatches(model, ROLLOUTS) as parts:
        assert sorted(map(sorted, parts)) == [[0, 2], [1], [3]]


def test_work_that_runs_out_of_memory_is_repeated_in_smaller_microbatches(model: ScoringModel):
    passes, done = made_passes(model, tokens=40), []

    def work() -> int:
        with passes.microbatches(model, ROLLOUTS) as parts:
            for part in parts:
                if len(part) > 2:
                    raise torch.OutOfMemoryError("CUDA out of memory.")
        return passes.budget.tokens

    assert passes.within_memory(work, ROLLOUTS, lambda: done.append("cleared")) == 20
    assert done == ["cleared"]


def test_numbers_are_returned_by_rollout(model: ScoringModel):
    """A batch's numbers are the ids of its response tokens, and one more for each rollout where they are asked for."""
    passes = made_passes(model, tokens=10)
    rollouts = [replace(r, response_ids=torch.arange(r.length) + 10 * i) for i, r in enumerate(ROLLOUTS)]
    made = passes.by_rollout(model, lambda batch: batch.tokens[batch.response_slots], rollouts)
    assert [tokens.tolist() for tokens in made] == [r.response_ids.tolist() for r in rollouts]
    more = passes.by_rollout(model, lambda batch: batch.tokens[batch.state_rows], rollouts, further=1)
    assert [len(tokens) for tokens in more] == [r.length + 1 for r in rollouts]
    assert [tokens[1:].tolist() for tokens in more] == [r.response_ids.tolist() for r in rollouts]


def test_mixed_precision_computes_in_its_dtype(model: ScoringModel):
    for mixed_in, dtype in ((None, torch.float32), (torch.bfloat16,) * 2, (torch.float16,) * 2):
        with replace(made_passes(model), mixed_in=mixed_in).precision(model):
            assert model.lm.lm_head.weight.dtype == dtype
