"""The model's hidden state in a step: what the head got, for strategies that declare to read it."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel

SEEN: dict[tuple[Tensor, Tensor], Tensor] = {}


@dataclass(frozen=True)
class MixBySign(Exploration):
    """Mixes the two most likely tokens where the first number of the hidden state is positive; fills `SEEN`."""

    width: int = 2

    reads_hidden = True

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        assert ctx.hidden is not None
        for key, position, hidden in zip(ctx.keys.unbind(), ctx.positions.unbind(), ctx.hidden.unbind(), strict=True):
            SEEN[key, position] = hidden
        probs, ids = logits.softmax(-1).topk(2)
        mixed = ctx.hidden[:, 0] > 0
        return Step(ctx.sample(logits), mixed, ids, probs / probs.sum(-1, keepdim=True))


@pytest.fixture
def strategy() -> MixBySign:
    return MixBySign()


def test_it_is_the_last_hidden_state_of_the_model(make_engine, bound, requests, sampling, tiny_model_path, strategy):
    """Of each token's step: that of the position before it, of the inputs that the rollout saw."""
    engine = make_engine(max_batch_size=5)
    exploration = bound(engine, strategy)
    SEEN.clear()
    rollouts = engine.generate(requests, sampling, exploration)
    seen = {(int(key), int(position)): hidden for (key, position), hidden in SEEN.items()}
    model = AutoModelForCausalLM.from_pretrained(tiny_model_path, attn_implementation="eager").eval()
    table = model.get_input_embeddings().weight
    mixed = 0
    for rollout in rollouts:
        inputs = table[torch.cat([rollout.prompt_ids, rollout.response_ids])].detach().clone()
        for slot, ids, weights in zip(rollout.mixture.positions, *rollout.mixture.record[:2], strict=True):
            inputs[slot] = (weights[:, None] * table[ids.long()]).sum(0)
        with torch.no_grad():
            output = model(inputs_embeds=inputs[None], output_hidden_states=True)
        last = output.hidden_states[-1][0]
        torch.testing.assert_close(model.lm_head(last), output.logits[0])
        for position in range(len(rollout.prompt_ids), rollout.tokens):
            torch.testing.assert_close(seen[rollout.key, position], last[position - 1], atol=1e-4, rtol=0)
        mixed += len(rollout.mixture.positions)
    assert 0 < mixed < sum(rollout.length for rollout in rollouts)


def test_the_trainer_replays_what_was_decided_by_it(make_engine, bound, requests, sampling, tiny_source, strategy):
    engine = make_engine()
    rollouts = engine.generate(requests, sampling, bound(engine, strategy))
    scores = ScoringModel(tiny_source.load())(pack(rollouts), sampling.temperature, strategy).log_prob
    torch.testing.assert_close(scores, torch.cat([r.log_probs for r in rollouts]), atol=1e-4, rtol=0)


def test_a_continuation_decides_by_the_hidden_state_of_the_prefix(make_engine, bound, requests, sampling, strategy):
    engine = make_engine()
    exploration = bound(engine, strategy)
    whole = engine.generate(requests[:4], sampling, exploration)
    asked = [replace(one, prefix=r.cut(r.length // 2)) for one, r in zip(requests, whole, strict=False)]
    for uncut, made in zip(whole, engine.generate(asked, sampling, exploration), strict=True):
        assert made.response_ids.equal(uncut.response_ids)
        assert made.mixture.positions.equal(uncut.mixture.positions)


def test_compiled_steps_get_it(make_engine, bound, requests, sampling):
    plain, engine = make_engine(), make_engine(compile=True)
    whole = plain.generate(requests[:4], sampling, bound(plain, Compilable()))
    for uncut, made in zip(whole, engine.generate(requests[:4], sampling, bound(engine, Compilable())), strict=True):
        assert made.response_ids.equal(uncut.response_ids)
        assert made.mixture.positions.equal(uncut.mixture.positions)


@dataclass(frozen=True)
class Compilable(Exploration):
    """The same without a memory."""

    width: int = 2

    reads_hidden = True

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        assert ctx.hidden is not None
        probs, ids = logits.softmax(-1).topk(2)
        mixed = ctx.hidden[:, 0] > 0
        return Step(ctx.sample(logits), mixed, ids, probs / probs.sum(-1, keepdim=True))


class Undeclared(Compilable):
    """Reads it, and does not say so."""

    reads_hidden = False


class InTheScore(Compilable):
    """Scores by what the trainer does not have."""

    def log_prob(self, logits, step, ctx):
        return super().log_prob(logits, step, ctx) + ctx.hidden.sum(-1).float()


class AcrossRows(Compilable):
    """Decides a row by the hidden states of all."""

    def step(self, logits, ctx):
        return super().step(logits, ctx)._replace(mixed=(ctx.hidden - ctx.hidden.mean(0))[:, 0] > 0)


def test_what_is_read_must_be_declared(make_engine, bound):
    with pytest.raises(SettingError, match="step reads ctx.hidden and reads_hidden=True is not declared"):
        bound(make_engine(), Undeclared())


def test_a_row_that_depends_on_the_hidden_state_of_another_is_refused(make_engine, bound):
    with pytest.raises(SettingError, match="step returns another mixed for a row alone"):
        bound(make_engine(), AcrossRows())


def test_only_a_step_has_it(make_engine, bound):
    """The author's own error: the trainer has no hidden state to score with."""
    with pytest.raises(AttributeError, match="'RowContext' object has no attribute 'hidden'"):
        bound(make_engine(), InTheScore())


def test_strategies_that_do_not_read_it_get_none(make_engine, bound, requests, sampling):
    seen = []

    class Watching(NeighborMixing):
        def step(self, logits, ctx):
            seen.append(ctx.hidden)
            return super().step(logits, ctx)

    engine = make_engine()
    engine.generate(requests[:2], sampling, bound(engine, Watching()))
    assert set(seen) == {None}
