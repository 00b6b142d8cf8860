"""Updates from truncated rollouts: first ratios, old policy, reference and gradients are those on the recorded sets."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from lightning import Trainer
from test_module import Logged, Recording
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from update_probe import ALGORITHMS, Case, GivenExperience

from ngrpo.algo.policy_loss import Algorithm
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.training.update_settings import UpdateSettings
from ngrpo.types.problems import PromptBatch
from ngrpo.types.rollouts import Rollout
from ngrpo.types.support import NO_ID

STRATEGIES: list[Exploration] = [
    MinPSampling(0.1, largest_support=128),
    TokenSampling(top_p=0.95, largest_support=128),
    TokenSampling(top_k=20, largest_support=128),
]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


@pytest.fixture
def case(make_engine, bound, requests, sampling, tiny_model_path, strategy) -> Case:
    engine = make_engine()
    rollouts = engine.generate(requests[:16], sampling, bound(engine, strategy))
    rewards = torch.tensor([[1.0, 0.0, 1.0, 0.0]] * 4)
    return Case(str(tiny_model_path), "grpo", sampling.temperature, 300, rollouts, rewards)


def fit(case: Case, algorithm: Algorithm, strategy: Exploration, lr: float, iterations: int = 1):
    logged = Logged()
    trainer = Trainer(
        accelerator="cpu", devices=1, max_epochs=1, callbacks=[logged], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    settings = UpdateSettings(temperature=case.temperature, microbatch_tokens=case.microbatch_tokens, max_grad_norm=1e9)
    optimizer = partial(torch.optim.SGD, lr=lr)
    module = Recording(ModelSource(case.model_path), algorithm, strategy, optimizer, settings)
    batches = [PromptBatch([], 0, iteration) for iteration in range(iterations)]
    for batch in batches:
        batch.experience = GivenExperience(case, 0, 1)
    trainer.fit(module, DataLoader(batches, batch_size=None))
    return module, logged.metrics


def obvious(case: Case, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of stock transformers' whole softmax, cut to the recorded ids and renormalised; [T]."""
    model = AutoModelForCausalLM.from_pretrained(case.model_path, attn_implementation="eager").eval()
    ids = torch.cat([rollout.prompt_ids, rollout.response_ids])
    with torch.no_grad():
        logits = model(input_ids=ids[None]).logits[0, len(rollout.prompt_ids) - 1 : -1].double() / case.temperature
    assert rollout.support is not None
    kept = torch.zeros(logits.shape, dtype=torch.bool)
    for row, one in enumerate(rollout.support.rows().tolist()):
        kept[row, [v for v in one if v != NO_ID]] = True
    probs = logits.softmax(-1) * kept
    probs = probs / probs.sum(-1, keepdim=True)
    chosen = probs[torch.arange(rollout.length), rollout.response_ids].log()
    return chosen, -(probs * probs.clamp_min(1e-300).log()).sum(-1)


@each_strategy
def test_first_ratios_are_one_and_replay_and_entropy_are_those_on_the_sets(case: Case, strategy: Exploration) -> None:
    module, (logged,) = fit(case, replace(ALGORITHMS["grpo"], optimizer_steps=2), strategy, lr=0.05)
    (_, before, _), (second, after, _) = module.steps
    assert float(before["policy/ratio"]) == 1.0
    assert abs(float(after["policy/ratio"]) - 1) > 1e-4
    assert logged["rollout/mismatch_max"] < 1e-4
    for sample in second:
        assert sample.old_log_prob is not None
        torch.testing.assert_close(sample.old_log_prob.double(), obvious(case, sample.rollout)[0], atol=1e-4, rtol=0)
    _, (still,) = fit(case, ALGORITHMS["grpo"], strategy, lr=0.0)
    entropies = torch.cat([obvious(case, rollout)[1] for rollout in case.rollouts])
    assert still["policy/entropy"] == pytest.approx(float(entropies.mean()), abs=1e-5)


@each_strategy
def test_the_reference_is_scored_on_the_same_sets(case: Case, strategy: Exploration) -> None:
    module, (first, second) = fit(case, ALGORITHMS["grpo"], strategy, lr=0.5, iterations=2)
    assert first["policy/kl"] < 1e-6
    assert second["policy/kl"] > 1e-4
    scored = module.scorer.reference_log_probs(case.rollouts)
    for rollout, log_prob in zip(case.rollouts, scored, strict=True):
        torch.testing.assert_close(log_prob.double(), obvious(case, rollout)[0], atol=1e-4, rtol=0)


@each_strategy
@pytest.mark.parametrize("name", ["grpo", "gspo"])
def test_the_microbatches_change_no_gradient(case: Case, strategy: Exploration, name: str) -> None:
    gradients = [
        fit(replace(case, microbatch_tokens=tokens), ALGORITHMS[name], strategy, lr=0.0)[0].steps[0][2]
        for tokens in (1, 10_000)
    ]
    for parameter, one in gradients[0].items():
        torch.testing.assert_close(gradients[1][parameter], one, atol=1e-6, rtol=1e-4)
    assert any(bool(one.any()) for one in gradients[0].values())
