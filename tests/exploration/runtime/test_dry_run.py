"""Strategies that are not what they declare are refused when they are bound; those that are bind at once."""

import random
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy
import pytest
import torch
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.latent_gumbel import LatentGumbel
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.neighbor_annealed import AnnealedNeighborMixing
from ngrpo.exploration.neighbor_entropy import EntropyNeighborMixing
from ngrpo.exploration.neighbor_selective import SelectiveNeighborMixing
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary

V, D = 64, 8
TABLE = torch.randn(V, D, generator=torch.Generator().manual_seed(0))
VOCABULARY = Vocabulary(V, frozenset({0}), {"</think>": 5})
EXAMPLES = str(ROOT / "examples")


@dataclass(frozen=True)
class Blend(Exploration):
    """The two most likely tokens, half the time: sound as it is; its subclasses are not."""

    rate: float = 0.5

    width = 2

    def step(self, logits, ctx):
        largest, ids = logits.topk(2)
        mixed = (ctx.uniform("gate") < self.rate) & ~ctx.ended
        return self.changed(Step(ctx.sample(logits), mixed, ids, largest.softmax(-1)), logits, ctx)

    def changed(self, step, logits, ctx):
        return step


def wrong(flags: dict[str, object] | None = None, **changes) -> Exploration:
    """A `Blend` with other flags whose steps have other fields, made of (step, logits, context)."""

    class Wrong(Blend):
        def changed(self, step, logits, ctx):
            return step._replace(**{name: make(step, logits, ctx) for name, make in changes.items()})

    for name, value in (flags or {}).items():
        setattr(Wrong, name, value)
    return Wrong()


def rows(value: float, dtype: torch.dtype = torch.float32):
    return lambda step, logits, ctx: torch.full_like(step.token, value, dtype=dtype)


def shipped() -> list[Exploration]:
    sys.path.insert(0, EXAMPLES)
    try:
        from blend_top_two import BlendTopTwo
        from resting_blend import RestingBlend
    finally:
        sys.path.remove(EXAMPLES)
    return [
        TokenSampling(),
        TokenSampling(top_k=5, top_p=0.9),
        MinPSampling(),
        NeighborMixing(),
        AnnealedNeighborMixing(),
        EntropyNeighborMixing(),
        SelectiveNeighborMixing(),
        SoftThinking(),
        SoftThinking(rate=0.5),
        GumbelSoftThinking(),
        LatentGumbel(top_k=4),
        GumbelSoftThinking(top_p=1.0, density="masked_mean"),
        GaussianSoftTokens(),
        GaussianSoftTokens(tau=0.0001),
        GaussianTopK(),
        HybridReasoning(),
        BlendTopTwo(),
        RestingBlend(),
        Blend(),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("strategy", shipped(), ids=lambda s: type(s).__name__)
def test_sound_strategies_bind_in_under_a_second(strategy, dtype):
    start = time.perf_counter()
    bound = bind(strategy, TABLE.to(dtype), VOCABULARY)
    assert time.perf_counter() - start < 1.0
    assert bound.strategy is strategy


CONTRADICTIONS = {
    "noise that is not declared": (wrong(noise=rows(0.5)), "step returns noise and noisy=True is not declared"),
    "noise that is declared only": (wrong({"noisy": True}), "noisy=True is declared and step returns no noise"),
    "scores": (wrong(scores=lambda s, *_: s.weights), "step returns scores and scored=True is not declared"),
    "vector": (wrong(vector=lambda s, *_: TABLE[s.token]), "step returns vector and dense=True is not declared"),
    "state": (wrong(state=rows(1, torch.int32)), "step returns state and stateful=True is not declared"),
    "state that is read": (
        wrong(weights=lambda s, _, ctx: s.weights * (ctx.state + 1)[:, None].float()),
        "step reads ctx.state and stateful=True is not declared",
    ),
    "embedding that is read": (
        wrong(weights=lambda s, _, ctx: ctx.embedding[s.ids].sum(-1)),
        "step reads ctx.embedding and reads_embedding=True is not declared",
    ),
    "width too large": (wrong({"width": 3}), r"step returns ids of shape \[2, 2\] instead of \[2, 3\]; width"),
    "width too small": (wrong({"width": 1}), r"step returns ids of shape \[2, 2\] instead of \[2, 1\]; width"),
    "mixed without a mixture": (
        wrong({"width": 0}, ids=lambda s, *_: s.ids[:, :0], weights=lambda s, *_: s.weights[:, :0]),
        "marks rows as mixed and returns nothing to feed",
    ),
}

UNUSABLE = {
    "weights in float64": (wrong(weights=lambda s, *_: s.weights.double()), "weights of dtype float64"),
    "weights in bfloat16": (wrong(weights=lambda s, *_: s.weights.bfloat16()), "weights of dtype bfloat16"),
    "ids as floats": (wrong(ids=lambda s, *_: s.ids.float()), "ids of dtype float32 instead of int64"),
    "a column of tokens": (wrong(token=lambda s, *_: s.token[:, None]), r"token of shape \[2, 1\] instead of \[2\]"),
    "a list of tokens": (wrong(token=lambda s, *_: [3, 4]), "token of type list; return a tensor"),
    "mixed as numbers": (wrong(mixed=lambda s, *_: s.mixed.float()), "mixed of dtype float32 instead of bool"),
    "another device": (wrong(weights=lambda s, *_: s.weights.to("meta")), "weights on meta and its logits are on cpu"),
    "a vector of another width": (
        wrong({"dense": True}, vector=lambda s, *_: TABLE[s.token][:, :3]), r"vector of shape \[2, 3\] instead"
    ),
    "a vector of another dtype": (
        wrong({"dense": True}, vector=lambda s, *_: TABLE[s.token].double()), "vector of dtype float64"
    ),
    "a NaN in the vector": (
        wrong({"dense": True}, vector=lambda s, *_: TABLE[s.token] * float("nan")), "vectors that are not finite"
    ),
    "NaN weights": (wrong(weights=lambda s, *_: s.weights * float("nan")), "weights that are not finite"),
    "NaN weights where the model is sure": (
        wrong(weights=lambda s, logits, _: s.weights * (logits.softmax(-1).amin(-1) > 0).float().log()[:, None]),
        "weights that are not finite",
    ),
    "NaN scores": (
        wrong({"scored": True}, scores=lambda s, *_: s.weights * float("nan")), "scores that are NaN"
    ),
    "infinite noise": (wrong({"noisy": True}, noise=rows(float("inf"))), "not a finite standard deviation"),
    "negative noise": (wrong({"noisy": True}, noise=rows(-1.0)), "not a finite standard deviation"),
    "state in int64": (wrong({"stateful": True}, state=rows(1, torch.int64)), "state of dtype int64 instead of int32"),
    "a token beyond the vocabulary": (wrong(token=lambda s, *_: s.token + V), "tokens outside the 64"),
    "an id below it": (wrong(ids=lambda s, *_: s.ids - V), "ids outside the 64 of the vocabulary"),
    "a read of one value": (
        wrong(mixed=lambda s, logits, _: s.mixed & (logits.max().item() > 0)), "reads values back to the host"
    ),
    "a condition": (wrong(token=lambda s, *_: s.token if s.mixed.any() else s.token), "reads values back to the host"),
    "a loop over rows": (
        wrong(token=lambda s, *_: torch.tensor([t + 0 for t in s.token.tolist()])), "reads values back to the host"
    ),
    "a condition's places": (
        wrong(ids=lambda s, *_: s.ids[torch.where(s.token >= 0)[0]]), "torch.where of a condition alone"
    ),
    "the time as an index": (
        wrong(weights=lambda s, _, ctx: s.weights * torch.ones(2_000_000)[ctx.progress]), "index_select takes it"
    ),
    "numbers under a mask": (
        wrong(weights=lambda s, *_: s.weights.clone().__setitem__(s.mixed, s.weights[:1])), "indexing with a mask"
    ),
    "repeats of a row's own number": (
        wrong(token=lambda s, *_: s.token.repeat_interleave(torch.ones_like(s.token))), "Tensor.repeat_interleave"
    ),
    "a printed tensor": (wrong(token=lambda s, *_: (str(s.token), s.token)[1]), "Tensor.__repr__"),
    "a comparison": (wrong(token=lambda s, *_: s.token * torch.allclose(s.weights, s.weights)), "Tensor.allclose"),
    "a mask as an index": (wrong(weights=lambda s, *_: s.weights * len(s.token[s.mixed])), "indexing with a mask"),
    "the other rows": (
        wrong(weights=lambda s, logits, _: s.weights * logits.mean()), "another weights for a row alone than"
    ),
    "the number of rows": (wrong(mixed=lambda s, *_: s.mixed & (len(s.token) > 1)), "another mixed for a row alone"),
    "the row's number": (
        wrong(mixed=lambda s, logits, _: (logits.amax(-1) < 60.0) & (torch.arange(len(logits)) % 2 == 0)),
        "another mixed for the same row at another place in the batch",
    ),
    "PyTorch's generator": (wrong(weights=lambda s, *_: torch.rand_like(s.weights)), "step draws from a global gene"),
    "PyTorch's generator where it seldom matters": (
        wrong(mixed=lambda s, *_: s.mixed & (torch.rand(len(s.token)) < 2)), "step draws from a global generator"
    ),
    "Python's generator": (wrong(weights=lambda s, *_: s.weights * random.random()), "draw random numbers from its co"),
    "NumPy's generator": (wrong(weights=lambda s, *_: s.weights * numpy.random.rand()), "such as ctx.uniform"),
    "a change of its logits in place": (
        wrong(weights=lambda s, logits, _: logits[:, :3].zero_()[:, :2] + s.weights), "step writes into its logits, "
    ),
    "a change of its context in place": (
        wrong(mixed=lambda s, _, ctx: ctx.ended.logical_or_(s.mixed)), r"step writes into ctx\.ended, which"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("strategy", "fault"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_what_contradicts_the_class_is_refused(strategy: Exploration, fault: str):
    with pytest.raises(SettingError, match=fault) as caught:
        bind(strategy, TABLE, VOCABULARY)
    assert str(caught.value).startswith("exploration=Wrong cannot be run: ")


@pytest.mark.parametrize(("strategy", "fault"), UNUSABLE.values(), ids=UNUSABLE)
def test_what_cannot_be_recorded_and_fed_is_refused(strategy: Exploration, fault: str):
    with pytest.raises(SettingError, match=fault):
        bind(strategy, TABLE, VOCABULARY)


def test_a_step_that_is_no_step_is_refused():
    class Pair(Blend):
        def changed(self, step, logits, ctx):
            return step.token, step.mixed

    with pytest.raises(SettingError, match="step returns a tuple; return a Step"):
        bind(Pair(), TABLE, VOCABULARY)


def test_state_of_the_object_is_refused():
    class Counting(Blend):
        calls = [0]

        def changed(self, step, logits, ctx):
            self.calls[0] += 1
            return step._replace(weights=step.weights * self.calls[0])

    with pytest.raises(SettingError, match="keep state in Step.state"):
        bind(Counting(), TABLE, VOCABULARY)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_changes_that_pytorch_does_not_count_are_refused(mode: Callable[[], AbstractContextManager[None]]):
    """None is counted through ``.data``, and in the inference mode that Lightning validates in."""

    class Lowering(Blend):
        def changed(self, step, logits, ctx):
            logits.data.sub_(logits.amax(-1, keepdim=True))
            return step

    class Masking(Blend):
        def changed(self, step, logits, ctx):
            logits[:, 0] = -torch.inf
            return step

    for strategy in (Lowering(), Masking()):
        with mode(), pytest.raises(SettingError, match="step writes into its logits"):
            bind(strategy, TABLE, VOCABULARY)
    with mode():
        bind(Blend(), TABLE, VOCABULARY)


def test_state_of_the_object_that_does_not_show_yet_is_refused():
    class Counting(Blend):
        calls = {"step": 0}
        drawn = torch.Generator()

        def changed(self, step, logits, ctx):
            self.calls["step"] += 1
            return step

    class Drawing(Counting):
        def changed(self, step, logits, ctx):
            return step._replace(mixed=step.mixed & (torch.rand(len(logits), generator=self.drawn) < 2))

    class Stale(Blend):
        def prepare(self, embedding, vocabulary):
            object.__setattr__(self, "norms", embedding.norm(dim=-1))
            return {}

    class Lasting(Blend):
        @cached_property
        def weights(self):
            return torch.full((1, 2), 0.5)

        def changed(self, step, logits, ctx):
            return step._replace(weights=self.weights.expand(len(logits), 2))

    for strategy, fault in [
        (Counting(), "step changes calls of its object"),
        (Drawing(), "step changes drawn of its object"),
        (Stale(), "prepare keeps norms on the object"),
        (Lasting(), "step changes weights of its object"),
    ]:
        with pytest.raises(SettingError, match=fault):
            bind(strategy, TABLE, VOCABULARY)


def test_what_is_written_once_into_a_mask_is_no_read():
    def halved(step, logits, ctx):
        weights = step.weights.clone()
        weights[step.mixed] = 0.5
        return weights

    bind(wrong(weights=halved), TABLE, VOCABULARY)


def test_a_change_of_the_record_in_place_is_refused():
    class Scoring(Blend):
        def log_prob(self, logits, step, ctx):
            step.weights.div_(2)
            return super().log_prob(logits, step, ctx)

    class Feeding(Blend):
        def inputs(self, embed, step, ctx, parameters):
            step.weights.div_(2)
            return super().inputs(embed, step, ctx, parameters)

    for strategy, fault in [
        (Scoring(), "log_prob writes into step.weights"),
        (Feeding(), "inputs writes into step.we"),
    ]:
        with pytest.raises(SettingError, match=fault):
            bind(strategy, TABLE, VOCABULARY)


def test_gradients_that_the_trainer_cannot_use_are_refused():
    class Detached(Blend):
        def log_prob(self, logits, step, ctx):
            return super().log_prob(logits, step, ctx).detach()

    class Entropic(Blend):
        def log_prob(self, logits, step, ctx):
            probs = logits.softmax(-1)
            terms = torch.where(probs > 0, probs * probs.log(), torch.zeros_like(probs))
            return super().log_prob(logits, step, ctx) - terms.sum(-1)

    class Rooted(Blend):
        def inputs(self, embed, step, ctx, parameters):
            vectors = super().inputs(embed, step, ctx, parameters)
            return vectors + (vectors - vectors.detach()).abs().sqrt()

    class Unused(Blend):
        def initial_parameters(self, dim):
            return {"gain": torch.ones(dim)}

        def learning_rates(self):
            return {"gain": 0.1}

    class Written(Unused):
        def inputs(self, embed, step, ctx, parameters):
            parameters["gain"].clamp_(max=0.5)
            return super().inputs(embed, step, ctx, parameters) * parameters["gain"]

    for strategy, fault in [
        (Detached(), "log_prob has no gradient towards its logits"),
        (Entropic(), "the gradient of log_prob towards its logits is not finite"),
        (Rooted(), "the gradient of inputs towards the embedding is not finite"),
        (Unused(), "inputs has no gradient towards the learned gain"),
        (Written(), r'inputs writes into parameters\["gain"\]'),
    ]:
        with pytest.raises(SettingError, match=fault):
            bind(strategy, TABLE, VOCABULARY)
    with torch.inference_mode():
        bind(Detached(), TABLE, VOCABULARY)


def test_a_change_of_a_table_in_place_is_refused():
    class Counting(Blend):
        def prepare(self, embedding, vocabulary):
            return {"calls": torch.zeros(())}

        def changed(self, step, logits, ctx):
            ctx.tables["calls"].mul_(1)
            return step

    with pytest.raises(SettingError, match=r'step writes into ctx.tables\["calls"\]'):
        bind(Counting(), TABLE, VOCABULARY)


def test_inputs_and_scores_are_tried_as_the_trainer_has_them():
    class OtherDtype(Blend):
        def inputs(self, embed, step, ctx, parameters):
            return super().inputs(embed, step, ctx, parameters).double()

    class Infinite(Blend):
        def log_prob(self, logits, step, ctx):
            return super().log_prob(logits, step, ctx) / 0

    class OfUnrecorded(Blend):
        def log_prob(self, logits, step, ctx):
            return super().log_prob(logits, step, ctx) + step.weights[:, 0]

    class OfTables(Blend):
        def log_prob(self, logits, step, ctx):
            return super().log_prob(logits, step, ctx) + ctx.tables["shift"]

    class Noisy(Blend):
        def inputs(self, embed, step, ctx, parameters):
            return super().inputs(embed, step, ctx, parameters) + torch.randn(1)

    class Masking(Blend):
        def log_prob(self, logits, step, ctx):
            return super().log_prob(logits.clamp_(min=-20.0), step, ctx)

    for strategy, fault in [
        (Noisy(), "inputs draws from a global generator"),
        (Masking(), "log_prob writes into its logits"),
        (OtherDtype(), "inputs returns numbers of dtype float64 instead of float32"),
        (Infinite(), "log_prob returns numbers that are not finite"),
        (OfUnrecorded(), "log_prob depends on what is not recorded"),
    ]:
        with pytest.raises(SettingError, match=fault):
            bind(strategy, TABLE, VOCABULARY)
    with pytest.raises(AttributeError, match="tables"):
        bind(OfTables(), TABLE, VOCABULARY)


def test_tables_and_learned_parameters_are_tried():
    class Listed(Blend):
        def prepare(self, embedding, vocabulary):
            return {"ids": [1, 2]}

    class Learning(Blend):
        rates = {"gain": 0.1}

        def initial_parameters(self, dim):
            return {"gain": torch.ones(dim)}

        def learning_rates(self):
            return self.rates

        def inputs(self, embed, step, ctx, parameters):
            return super().inputs(embed, step, ctx, parameters) * parameters["gain"]

    class Unpaced(Learning):
        rates = {}

    class Backwards(Learning):
        rates = {"gain": -0.1}

    class Changing(Learning):
        def initial_parameters(self, dim):
            return {"gain": torch.rand(dim)}

    bind(Learning(), TABLE, VOCABULARY)
    for strategy, fault in [
        (Listed(), "prepare returns something else than tensors"),
        (Unpaced(), r"it learns \['gain'\] and has learning rates for \[\]"),
        (Backwards(), "the learning rate of gain is -0.1"),
        (Changing(), "the initial gain differs from call to call"),
    ]:
        with pytest.raises(SettingError, match=fault):
            bind(strategy, TABLE, VOCABULARY)


def test_training_time_is_a_tensor_of_steps_alone():
    class Fading(Blend):
        def changed(self, step, logits, ctx):
            return step._replace(weights=step.weights / (1 + ctx.progress))

    class Reading(Blend):
        def changed(self, step, logits, ctx):
            return step._replace(weights=step.weights / (1 + int(ctx.progress)))

    class Late(Blend):
        def changed(self, step, logits, ctx):
            return step._replace(weights=step.weights / (1_000_000 - ctx.progress))

    class Scoring(Blend):
        def log_prob(self, logits, step, ctx):
            return super().log_prob(logits, step, ctx) / (1 + ctx.progress)

    class Listed(Blend):
        def schedule(self, progress):
            return {"rate": 0.5}

    assert bind(Fading(), TABLE, VOCABULARY).after(5).progress.tolist() == 5
    for strategy, fault in [
        (Reading(), "reads values back to the host"),
        (Late(), "weights that are not finite"),
        (Listed(), "schedule returns something else than a tensor of one number"),
    ]:
        with pytest.raises(SettingError, match=fault):
            bind(strategy, TABLE, VOCABULARY)
    with pytest.raises(AttributeError, match="progress"):
        bind(Scoring(), TABLE, VOCABULARY)


@pytest.mark.parametrize("method", ["prepare", "step", "inputs", "log_prob"])
def test_an_exception_of_the_author_passes_with_its_traceback(method: str):
    def broken(*args):
        raise KeyError("a typing error of the author")

    strategy = type("Broken", (Blend,), {method: broken})()
    with pytest.raises(KeyError, match="a typing error") as caught:
        bind(strategy, TABLE, VOCABULARY)
    assert any(entry.name == "broken" and str(entry.path) == __file__ for entry in caught.traceback)


def test_restored_tables_are_tried_instead_of_new_ones():
    class Prepared(Blend):
        def prepare(self, embedding, vocabulary):
            raise AssertionError("prepared anew")

        def changed(self, step, logits, ctx):
            return step._replace(weights=step.weights * ctx.tables["scale"])

    kept = {"scale": torch.tensor(2.0)}
    assert bind(Prepared(), TABLE, VOCABULARY, tables=kept).tables["scale"] == 2.0
    with pytest.raises(SettingError, match="weights of shape"):
        bind(Prepared(), TABLE, VOCABULARY, tables={"scale": torch.ones(5, 1, 1)})
