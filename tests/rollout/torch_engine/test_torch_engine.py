"""Exactness and invariance of the torch engine."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from made_models import tiny_config, tiny_model
from made_rollouts import same_distributions
from transformers import AutoModelForCausalLM

from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling, StopReason

MIXING = NeighborMixing(rate=0.4, k=3)


def same(a: Rollout, b: Rollout) -> bool:
    return (
        torch.equal(a.response_ids, b.response_ids)
        and torch.equal(a.mixture.positions, b.mixture.positions)
        and torch.equal(a.mixture.record.ids, b.mixture.record.ids)
        and torch.allclose(a.mixture.record.weights, b.mixture.record.weights, atol=1e-5)
        and torch.allclose(a.log_probs, b.log_probs, atol=1e-5)
        and a.stop_reason == b.stop_reason
        and same_distributions(a, b, atol=1e-3)
    )


def reference_log_probs(path, rollout: Rollout, temperature: float, ignore_mixture: bool = False) -> torch.Tensor:
    """Scores one rollout with stock transformers, one sequence, no packing, no shared code."""
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
    table = model.get_input_embeddings().weight
    tokens = torch.cat([rollout.prompt_ids, rollout.response_ids])
    inputs = table[tokens].clone()
    if not ignore_mixture:
        for slot, ids, weights in zip(rollout.mixture.positions, *rollout.mixture.record[:2], strict=True):
            inputs[slot] = sum(w * table[i] for i, w in zip(ids.tolist(), weights.tolist(), strict=True))
    with torch.no_grad():
        logits = model(inputs_embeds=inputs[None]).logits[0]
    prompt = len(rollout.prompt_ids)
    return (logits[prompt - 1 : -1] / temperature).log_softmax(-1)[torch.arange(rollout.length), rollout.response_ids]


@pytest.mark.parametrize("strategy", [TokenSampling(), MIXING])
def test_log_probs_equal_stock_transformers_at_mixed_and_plain_positions(
    make_engine, bound, requests, sampling, tiny_model_path, strategy
):
    engine = make_engine()
    rollouts = engine.generate(requests, sampling, bound(engine, strategy))
    worst, worst_ignored = 0.0, 0.0
    for rollout in rollouts:
        expected = reference_log_probs(tiny_model_path, rollout, sampling.temperature)
        worst = max(worst, float((expected - rollout.log_probs).abs().max()))
        ignored = reference_log_probs(tiny_model_path, rollout, sampling.temperature, ignore_mixture=True)
        worst_ignored = max(worst_ignored, float((ignored - rollout.log_probs).abs().max()))
    assert worst < 1e-4
    assert (worst_ignored > 0.01) == (strategy is MIXING)


def test_trainer_replay_equals_engine(make_engine, bound, requests, sampling, tiny_source):
    engine = make_engine()
    rollouts = engine.generate(requests, sampling, bound(engine, MIXING))
    model = ScoringModel(tiny_source.load())
    scores = model(pack(rollouts), sampling.temperature, MIXING)
    recorded = torch.cat([r.log_probs for r in rollouts])
    assert sum(len(r.mixture.positions) for r in rollouts) > 50
    torch.testing.assert_close(scores.log_prob, recorded, atol=1e-4, rtol=0)


@pytest.mark.parametrize("strategy", [TokenSampling(), MIXING])
def test_rollouts_do_not_depend_on_batch_size_or_order(make_engine, bound, requests, sampling, strategy):
    engine = make_engine(64)
    together = engine.generate(requests, sampling, bound(engine, strategy))
    for size in (1, 5):
        small = make_engine(size)
        alone = small.generate(requests, sampling, bound(small, strategy))
        assert all(same(a, b) for a, b in zip(together, alone, strict=True))
    order = list(range(len(requests)))
    random.Random(0).shuffle(order)
    shuffled = engine.generate([requests[i] for i in order], sampling, bound(engine, strategy))
    assert all(same(together[i], shuffled[place]) for place, i in enumerate(order))


@pytest.mark.parametrize("exact", [False, True])
def test_a_rollout_whose_numbers_overflow_leaves_the_others_as_they_are(tiny_source, bound, requests, sampling, exact):
    """Its keys and values, which are NaN, stay in the slot that the next rollout gets."""
    engine = TorchEngine(tiny_source, 3, exact=exact)
    engine.start(torch.device("cpu"))
    broken = 5  # no prompt has it
    with torch.no_grad():
        engine.embedding()[broken] = torch.inf
    strategy = bound(engine, TokenSampling())
    alone = engine.generate(requests, sampling, strategy)
    overflowing = [Request((4,) * 30 + (broken,) * 8, key) for key in range(3)]
    made = engine.generate([*overflowing, *requests], sampling, strategy)
    assert all(bool(one.log_probs.isnan().all()) for one in made[:3])
    sound = [bool(one.log_probs.isfinite().all()) for one in alone]  # not having drawn that token
    assert sum(sound) > len(requests) / 2
    assert all(same(one, other) for one, other, is_sound in zip(alone, made[3:], sound, strict=True) if is_sound)


def test_rate_zero_gives_the_rollouts_of_token_sampling(make_engine, bound, requests, sampling):
    engine = make_engine()
    plain = engine.generate(requests, sampling, bound(engine, TokenSampling()))
    unmixed = engine.generate(requests, sampling, bound(engine, NeighborMixing(rate=0.0)))
    for a, b in zip(plain, unmixed, strict=True):
        assert torch.equal(a.response_ids, b.response_ids)
        assert torch.equal(a.log_probs, b.log_probs)
        assert len(b.mixture.positions) == 0


def test_stop_reasons(make_engine, bound, requests, sampling):
    engine = make_engine()
    rollouts = engine.generate(requests, sampling, bound(engine, TokenSampling()))
    reasons = {r.stop_reason for r in rollouts}
    assert reasons == set(StopReason)
    for r in rollouts:
        stopped = r.stop_reason is StopReason.STOP
        assert (int(r.response_ids[-1]) == 3) == stopped
        assert stopped or r.length == sampling.max_new_tokens
        assert 3 not in r.response_ids[:-1].tolist()


def test_samples_of_a_prompt_differ_and_keys_decide(make_engine, bound, requests, sampling):
    engine = make_engine()
    rollouts = engine.generate(requests, sampling, bound(engine, TokenSampling()))
    group = {tuple(r.response_ids.tolist()) for r in rollouts[:4]}
    assert len(group) == 4
    again = engine.generate([requests[0], requests[0]], sampling, bound(engine, TokenSampling()))
    assert same(again[0], again[1])


def test_sync_weights_changes_what_is_served_and_names_are_checked(make_engine, bound, requests, sampling):
    engine = make_engine()
    before = engine.generate(requests[:4], sampling, bound(engine, TokenSampling()))
    tensors = {name: p.clone() * 1.5 for name, p in engine.lm.named_parameters()}
    engine.sync_weights(tensors.items())
    after = engine.generate(requests[:4], sampling, bound(engine, TokenSampling()))
    assert not all(same(a, b) for a, b in zip(before, after, strict=True))
    with pytest.raises(ValueError, match="unknown or repeated parameter: nope"):
        engine.sync_weights([("nope", torch.zeros(1))])
    with pytest.raises(ValueError, match="no weights came for"):
        engine.sync_weights([])


def test_weights_of_another_shape_are_refused_instead_of_repeated(make_engine, bound, requests, sampling):
    engine = make_engine()
    served = {name: parameter.clone() for name, parameter in engine.lm.named_parameters()}
    name = next(name for name, parameter in served.items() if parameter.dim() == 2)
    with pytest.raises(ValueError, match=rf"weights of shape \[1, .* for {name} of shape"):
        engine.sync_weights({**served, name: served[name][:1]}.items())
    assert torch.equal(dict(engine.lm.named_parameters())[name], served[name])


def test_threads_wait_for_one_another(make_engine, bound, requests, sampling):
    """They would share the cache, and each would read what another has written."""
    engine = make_engine()
    exploration = bound(engine, MIXING)
    parts = [requests[at : at + 6] for at in range(0, 24, 6)]
    alone = [engine.generate(part, sampling, exploration) for part in parts]
    with ThreadPoolExecutor(len(parts)) as pool:
        together = list(pool.map(lambda part: engine.generate(part, sampling, exploration), parts * 3))
    for ours, theirs in zip(together, alone * 3, strict=True):
        assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))


def test_sleep_and_wake_do_not_change_rollouts(make_engine, bound, requests, sampling):
    engine = make_engine()
    before = engine.generate(requests[:4], sampling, bound(engine, MIXING))
    engine.sleep()
    engine.wake()
    after = engine.generate(requests[:4], sampling, bound(engine, MIXING))
    assert all(same(a, b) for a, b in zip(before, after, strict=True))


def test_weights_that_were_loaded_already_change_nothing(make_engine):
    engine = make_engine()
    weights = {name: parameter.clone() for name, parameter in engine.lm.named_parameters()}
    engine.sync_loaded(weights.items())
    changed = next(name for name in weights if name.endswith("up_proj.weight"))
    weights[changed] = weights[changed] + 1.0
    with pytest.raises(RunError, match=rf"gives other weights each time it is loaded \({changed}.* differ between"):
        engine.sync_loaded(weights.items())


def test_an_engine_that_does_not_run_says_so(make_engine, bound, requests, sampling):
    engine = make_engine()
    mixing = bound(engine, MIXING)
    engine.close()
    for use in (
        lambda: engine.generate(requests, sampling, mixing),
        engine.embedding,
        lambda: engine.sync_weights([]),
        lambda: engine.sync_loaded([]),
    ):
        with pytest.raises(RuntimeError, match="^the engine is not running; call start first$"):
            use()


LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.5] * 4, "long_factor": [4.0] * 4}


@pytest.mark.parametrize(("kind", "changes"), [
    ("phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 32}),
    ("mistral", {"sliding_window": 32, "max_position_embeddings": 32}),
])  # fmt: skip
def test_what_could_grow_past_a_switch_of_frequencies_or_a_window_is_refused(bound, requests, kind, changes):
    """Before it, log-probs are the model's own; of an engine by itself no script has checked the lengths."""
    lm = tiny_model(tiny_config(kind, **changes))
    engine = TorchEngine(lm)
    engine.start(torch.device("cpu"))
    longest = max(len(request.prompt_ids) for request in requests)
    for rollout in engine.generate(requests, Sampling(1.0, 32 - longest, ()), bound(engine, TokenSampling())):
        with torch.no_grad():
            logits = lm(input_ids=torch.cat([rollout.prompt_ids, rollout.response_ids])[None]).logits[0]
        own = logits[len(rollout.prompt_ids) - 1 : -1].log_softmax(-1)
        own = own[torch.arange(rollout.length), rollout.response_ids]
        torch.testing.assert_close(rollout.log_probs, own, atol=1e-4, rtol=0)
    with pytest.raises(SettingError, match=rf"max_new_tokens={33 - longest} are more than the 32 positions within"):
        engine.generate(requests, Sampling(1.0, 33 - longest, ()), bound(engine, TokenSampling()))
