"""Prompts that are computed once: the same scores and gradients as where each response has its own."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from made_models import EVERY_SUPPORTED, tiny_config, tiny_model
from made_rollouts import rollout
from torch import Tensor
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.critic import ValueModel
from ngrpo.modeling.exact.model import make_exact
from ngrpo.modeling.layers import CHECKPOINTING, prepare_layers
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.lora import LoraSettings, adapter_off, add_adapter
from ngrpo.modeling.packing import PackedBatch, pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.shared_prompts import SharedPrompts, at_rows, at_slots, at_slots_backward
from ngrpo.types.rollouts import Rollout

LONG, SHORT = [5, 6, 7, 8], [9, 10]
MIXED = [
    rollout(LONG, [20, 21, 22], {4: {30: 0.75, 31: 0.25}}, key=1),
    rollout(SHORT, [23], key=2),
    rollout(LONG, [24], key=3),
    rollout(LONG[:3], [25, 26], {4: {33: 0.25, 34: 0.75}}, key=4),
    rollout(SHORT, [27, 28], {2: {35: 0.5, 36: 0.5}}, key=5),
    rollout(LONG, [29, 30, 31, 32], {5: {37: 0.5, 38: 0.5}, 7: {39: 0.125, 40: 0.875}}, key=6),
]
"""Prompts of three, of two and of one response, of four tokens, of two and of three."""


def test_rows_by_hand():
    """LONG's rows are 0 to 3, SHORT's are 7 and 8, and the prompt of the fourth is no prompt of others."""
    batch = pack(MIXED, share_prompts=True)
    assert batch.tokens.tolist() == [5, 6, 7, 8, 20, 21, 22, 9, 10, 23, 24, 5, 6, 7, 25, 26, 27, 28, 29, 30, 31, 32]
    assert batch.positions.tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 4, 0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7]
    assert batch.keys.tolist() == [1] * 7 + [2] * 3 + [3] + [4] * 5 + [5] * 2 + [6] * 4
    assert batch.lengths == [7, 3, 5, 5, 4, 8]
    assert batch.response_lengths.tolist() == [3, 1, 1, 2, 2, 4]
    assert batch.response_slots.tolist() == [4, 5, 6, 9, 10, 14, 15, 16, 17, 18, 19, 20, 21]
    assert batch.scored_rows.tolist() == [3, 4, 5, 8, 3, 13, 14, 8, 16, 3, 18, 19, 20]
    assert batch.state_rows.tolist() == [3, 4, 5, 6, 8, 9, 3, 10, 13, 14, 15, 8, 16, 17, 3, 18, 19, 20, 21]
    assert batch.mixed_slots.tolist() == [4, 15, 16, 19, 21]
    shared = batch.shared
    assert shared is not None
    assert shared.row_of.tolist() == [
        *(0, 1, 2, 3, 4, 5, 6),
        *(7, 8, 9),
        *(0, 1, 2, 3, 10),
        *(11, 12, 13, 14, 15),
        *(7, 8, 16, 17),
        *(0, 1, 2, 3, 18, 19, 20, 21),
    ]
    first = [*range(10), 14, *range(15, 20), 22, 23, 28, 29, 30, 31]
    assert shared.slot_of.tolist() == first
    assert shared.repeated.tolist() == [0, 1, 2, 3, 7, 8]
    assert shared.again.tolist() == [10, 11, 12, 13, 20, 21, 24, 25, 26, 27]
    assert [s[f].tolist() for s, f in zip(shared.slots, shared.filled, strict=True)] == [
        *([slot, 10 + slot, 24 + slot] for slot in range(4)),
        *([7 + slot, 20 + slot] for slot in range(2)),
    ]


def test_a_small_part_is_not_shared():
    """Four of 104 tokens are less than 4 %, five of 105 are more."""
    for prompt, shares in ((4, False), (5, True)):
        rollouts = [rollout(range(5, 5 + prompt), [20] * (48 if prompt == 4 else 47), key=key) for key in range(2)]
        assert (pack(rollouts, share_prompts=True).shared is not None) == shares


def test_without_a_common_prompt_nothing_is_shared():
    apart = [MIXED[0], MIXED[1], MIXED[3]]
    assert pack(apart, share_prompts=True).shared is None
    assert pack(MIXED).shared is None
    assert pack([rollout([9], [23]), rollout([9], [24, 25])], share_prompts=True).shared is None  # hardly in common


def model(source: ModelSource, strategy: Exploration) -> ScoringModel:
    lm = source.load()
    return ScoringModel(lm, strategy.initial_parameters(lm.config.hidden_size))


def scored(policy: ScoringModel, batch: PackedBatch, strategy: Exploration) -> tuple[Tensor, Tensor, Tensor]:
    """Returns log-probs, entropies and the gradient of all parameters."""
    policy.zero_grad()
    log_prob, entropy = policy(batch, 0.8, strategy, entropy_gradient=True)
    slopes = torch.linspace(-1, 1, len(log_prob), device=log_prob.device)
    ((log_prob + 0.1 * entropy) * slopes).sum().backward()
    gradients = [p.grad.flatten() for p in policy.parameters() if p.grad is not None]
    return log_prob.detach(), entropy.detach(), torch.cat(gradients)


def assert_same(policy: ScoringModel, strategy: Exploration, rollouts: list[Rollout]) -> None:
    together, apart = pack(rollouts, share_prompts=True), pack(rollouts)
    assert len(together.tokens) < len(apart.tokens)
    found, expected = scored(policy, together, strategy), scored(policy, apart, strategy)
    assert float(expected[0].std()) > 1e-3
    torch.testing.assert_close(found[:2], expected[:2], atol=1e-5, rtol=0)
    assert float((found[2] - expected[2]).norm()) < 1e-5 * float(expected[2].norm())


@pytest.mark.parametrize(
    "strategy",
    [
        TokenSampling(),
        MinPSampling(0.05, largest_support=40),
        NeighborMixing(rate=0.4),
        HybridReasoning(end_token=None),
        GaussianSoftTokens(end_token=None),
    ],
    ids=lambda one: type(one).__name__,
)
def test_rollouts_of_an_engine(strategy: Exploration, tiny_source, make_engine, bound, requests, sampling):
    engine = make_engine()
    rollouts = engine.generate(requests, sampling, bound(engine, strategy))
    assert_same(model(tiny_source, strategy), strategy, [rollouts[i] for i in (0, 5, 1, 2, 4, 3, 6)])


def test_prefixes_are_not_shared(tiny_source: ModelSource):
    """A response of a prompt that begins with a given prefix is scored from the prefix on."""
    given = replace(MIXED[5], prefix_length=2)
    assert pack([MIXED[0], given], share_prompts=True).scored_rows.tolist() == [3, 4, 5, 8, 9]
    assert_same(model(tiny_source, NeighborMixing()), NeighborMixing(), [MIXED[0], given, MIXED[2], given])


@pytest.mark.parametrize("kind", EVERY_SUPPORTED)
def test_every_supported_model(kind: str):
    policy = ScoringModel(tiny_model(tiny_config(kind), IMPLEMENTATION))
    assert_same(policy, NeighborMixing(), MIXED)


def test_values(tiny_source: ModelSource):
    critic = ValueModel(tiny_source.load())
    torch.nn.init.normal_(critic.head.weight)
    for last in (False, True):
        together, apart = (critic(pack(MIXED, share), NeighborMixing(), last=last) for share in (True, False))
        torch.testing.assert_close(together, apart, atol=1e-5, rtol=0)


def test_layers_see_a_prompt_once(tiny_source: ModelSource):
    policy, seen = model(tiny_source, NeighborMixing()), []
    policy.lm.base_model.layers[0].mlp.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
    for share in (True, False):
        policy(pack(MIXED, share), 1.0, NeighborMixing())
    assert seen == [22, 32]


def test_a_response_sees_no_other_of_its_prompt(tiny_source: ModelSource):
    policy = model(tiny_source, NeighborMixing())
    changed = [*MIXED[:2], rollout(LONG, [50], key=3), *MIXED[3:]]
    with torch.no_grad():
        before, after = (policy(pack(r, share_prompts=True), 1.0, NeighborMixing())[0] for r in (MIXED, changed))
    assert (before != after).nonzero()[:, 0].tolist() == [4]


def test_exact_scores_stay_bit_for_bit(tiny_source: ModelSource):
    lm = tiny_source.load()
    make_exact(lm)
    policy = ScoringModel(lm)
    with torch.no_grad():
        together, apart = (policy(pack(MIXED, share), 0.7, NeighborMixing()).log_prob for share in (True, False))
    assert torch.equal(together, apart)


PAIR = [rollout(SHORT, [23, 24]), rollout(SHORT, [25])]
"""Two copies of two rows: sizes that are equal by chance."""


@pytest.mark.parametrize("checkpointing", list(CHECKPOINTING))
def test_compiled_layers(tiny_source: ModelSource, checkpointing: str, monkeypatch: pytest.MonkeyPatch):
    """A graph each with and without gradient, for all numbers of prompts and responses, and two without any shared."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    torch._dynamo.reset()
    counters.clear()
    plain, compiled = (model(tiny_source, NeighborMixing()).train() for _ in range(2))
    prepare_layers(compiled.lm.base_model.layers, checkpointing, compiled=True)
    graphs = []
    one_token = [rollout([9], [23, 24]), rollout([9], [25])]
    for rollouts in (PAIR, MIXED, MIXED[:3], MIXED[::2], [MIXED[0]] * 5, MIXED[:1], one_token):
        batch = pack(rollouts, share_prompts=True)
        found, expected = scored(compiled, batch, NeighborMixing()), scored(plain, batch, NeighborMixing())
        torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=0)
        assert float((found[2] - expected[2]).norm()) < 1e-5 * float(expected[2].norm())
        with torch.no_grad():
            compiled(batch, 0.8, NeighborMixing())
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs == [2] * 5 + [4] * 2
    torch._dynamo.reset()


def test_all_models_of_a_run_stay_compiled(tiny_source: ModelSource, monkeypatch: pytest.MonkeyPatch):
    """A policy, also without its adapter, and a critic; ``fullgraph`` makes an error of too many graphs."""
    pytest.importorskip("peft")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    torch._dynamo.reset()
    counters.clear()
    policy, critic = model(tiny_source, NeighborMixing()).train(), ValueModel(tiny_source.load()).train()
    add_adapter(policy.lm, LoraSettings(rank=2))
    for each in (policy, critic):
        prepare_layers(each.lm.base_model.layers, "full", compiled=True)
    for rollouts in (MIXED, MIXED[:1]):
        batch = pack(rollouts, share_prompts=True)
        scored(policy, batch, NeighborMixing())
        critic(batch, NeighborMixing()).sum().backward()
        with torch.no_grad():
            policy(batch, 0.8, NeighborMixing())
            critic(batch, NeighborMixing())
            with adapter_off(policy):
                policy(batch, 0.8, NeighborMixing())
    assert 8 < counters["stats"]["unique_graphs"] <= 12
    torch._dynamo.reset()


def places() -> SharedPrompts:
    made = pack(MIXED, share_prompts=True).shared
    assert made is not None
    return made


def where(made: SharedPrompts) -> tuple[Tensor, ...]:
    return made.row_of, made.slot_of, made.repeated, made.slots, made.filled


@pytest.mark.parametrize("function", ["at_slots", "at_rows"])
def test_gradients_are_those_of_finite_differences(function: str):
    made = places()
    calls: dict[str, tuple[int, Callable[[Tensor], Any]]] = {
        "at_slots": (len(made.slot_of), lambda rows: at_slots(rows, *where(made))),
        "at_rows": (len(made.row_of), lambda slots: at_rows(slots, made.row_of, made.slot_of, made.again)),
    }
    count, call = calls[function]
    torch.autograd.gradcheck(call, torch.randn(count, 6, dtype=torch.float64, requires_grad=True))
    example = torch.randn(count, 6, requires_grad=True)
    arguments = {
        "at_slots": (example, *where(made)),
        "at_rows": (example, made.row_of, made.slot_of, made.again),
    }
    torch.library.opcheck({"at_slots": at_slots, "at_rows": at_rows}[function], arguments[function])


def test_gradients_of_repeated_rows_are_added_in_float32():
    """In bfloat16 256 + 1 is 256, so that adding one after the other would leave it there."""
    made = SharedPrompts.of(torch.zeros(9, dtype=torch.int64), 1)
    assert made is not None
    rows = torch.ones(1, 1, dtype=torch.bfloat16, requires_grad=True)
    up = torch.tensor([256.0] + [1.0] * 8, dtype=torch.bfloat16).view(9, 1)
    (gradient,) = torch.autograd.grad(at_slots(rows, *where(made)), rows, up)
    assert float(gradient) == 264.0


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_on_a_gpu_bfloat16_rounds_no_more(compiled: bool):
    """Of heads of 64 numbers, by whichever kernel attends there; the truth is float32 without shared prompts."""
    config = tiny_config("qwen2", hidden_size=256, num_attention_heads=4, num_key_value_heads=2)
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(3, 60, (n,), generator=generator).tolist() for n in (70, 1, 130)]
    rollouts = [
        rollout(prompts[i % 3], torch.randint(3, 60, (50 + 13 * i,), generator=generator).tolist(), key=i)
        for i in range(9)
    ]

    def made(dtype: torch.dtype, share: bool) -> tuple[Tensor, Tensor]:
        lm = tiny_model(config, IMPLEMENTATION).to("cuda", dtype)
        prepare_layers(lm.base_model.layers, "off", compiled)
        found = scored(ScoringModel(lm).train(), pack(rollouts, share).to(torch.device("cuda")), TokenSampling())
        return found[0].double(), found[2].double()

    truth, apart, together = made(torch.float32, False), made(torch.bfloat16, False), made(torch.bfloat16, True)
    for true, one, other in zip(truth, apart, together, strict=True):
        assert float((other - true).norm()) < 1.2 * float((one - true).norm())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_gradients_of_a_row_that_scores_several_tokens_are_added_in_float32(dtype: torch.dtype):
    policy = ScoringModel(tiny_model(tiny_config("qwen2"), IMPLEMENTATION).to(dtype))
    made: list[Tensor] = []
    policy.lm.base_model.norm.register_forward_hook(lambda _, __, output: made.append(output))
    states = policy.scored_states(pack([rollout(SHORT, [11])] * 9, share_prompts=True), TokenSampling())
    assert states.dtype == dtype
    torch.testing.assert_close(states, made[0][0, 1].expand(9, -1), atol=0, rtol=0)
    up = torch.tensor([256.0] + [1.0] * 8, dtype=dtype)[:, None].expand_as(states)
    (gradient,) = torch.autograd.grad(states, made[0], up)
    assert gradient[0, 1].tolist() == [264.0] * 32


class LargestMade(TorchDispatchMode):
    """Finds the most numbers of a tensor that an operator makes."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.numbers = max(self.numbers, made.numel() if isinstance(made, Tensor) else 0)
        return made


def test_gradients_need_no_more_memory_for_unequal_numbers_of_responses():
    """Padded to sixty responses, a prompt of three hundred tokens that has two would take thirty times its memory."""
    long, short = list(range(300)), [5, 6]
    rollouts = [rollout(short, [7])] * 60 + [rollout(long, [8])] * 2
    made = pack(rollouts, share_prompts=True).shared
    assert made is not None
    gradient = torch.randn(len(made.row_of), 4)
    with LargestMade() as largest:
        found = at_slots_backward._init_fn(gradient, *where(made)[1:])
    assert largest.numbers <= gradient.numel()
    expected = torch.zeros(len(made.slot_of), 4).index_add_(0, made.row_of, gradient)
    torch.testing.assert_close(found, expected)
