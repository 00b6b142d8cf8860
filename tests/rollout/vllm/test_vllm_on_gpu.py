"""What a GPU alone shows: tensors that change between calls reach the kernels of a captured graph."""

import pytest
import torch
from vllm_checks import UNSTOPPED, mixed_total, random_requests, replay_error, start_engine

from ngrpo.exploration.neighbor_annealed import AnnealedNeighborMixing
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = [pytest.mark.vllm, pytest.mark.gpu]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_schedule_moves_inside_captured_graphs():
    source = ModelSource(dtype="float32")
    strategy = AnnealedNeighborMixing(rate_start=0.8, rate_end=0.1, schedule_iterations=6, end_token=None)
    engine = start_engine(source, strategy, eager=False, dtype="float32", device=torch.device("cuda"))
    trainer = ScoringModel(source.load())
    bound = bind(strategy, engine.embedding(), Vocabulary.of(source.tokenizer()))
    for finished, rate in ((0, 0.8), (3, 0.45), (6, 0.1), (0, 0.8)):
        rollouts = engine.generate(random_requests(6, 5, 60, samples=4), UNSTOPPED, bound.after(finished))
        tokens = sum(rollout.length for rollout in rollouts)
        assert abs(mixed_total(rollouts) / tokens - rate) < 5 * (rate * (1 - rate) / tokens) ** 0.5
        # TF32 products in the card's attention, exact ones on the CPU
        error, ignored = (
            replay_error(rollouts, strategy, UNSTOPPED.temperature, trainer, ignore=ignore) for ignore in (False, True)
        )
        assert error < 0.1
        assert ignored > 4 * error
    engine.close()
