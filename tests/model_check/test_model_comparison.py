"""A model that is computed right passes whatever its kind and numbers; each of many faults is refused."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pytest
import torch
from tiny_kinds import CONFIGS, VOCABULARY, tiny
from torch import Tensor
from torch.nn.functional import dropout

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.model_check.comparison import Finding, Numbers, OwnModel, compare, requests, sampling
from ngrpo.modeling import policy
from ngrpo.modeling.head import LogitMap
from ngrpo.modeling.lora import LoraSettings, add_adapter
from ngrpo.modeling.packing import PackedBatch, pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.precision import computing_in
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Rollout

MIXING = NeighborMixing(rate=0.4, k=3, end_token=None)
MODES = ("float32", "bfloat16", "mixed")


@dataclass
class Parts:
    """What is compared; a fault changes it."""

    engine: TorchEngine
    policy: ScoringModel
    strategy: Exploration = MIXING
    temperature: float = 0.8
    mixed: bool = False
    trained: Callable[[Sequence[Rollout]], Sequence[Rollout]] = lambda rollouts: rollouts
    packed: Callable[[PackedBatch], PackedBatch] = lambda batch: batch

    def findings(self) -> list[Finding]:
        asked = requests(VOCABULARY, 64, self.strategy.mixes)
        vocabulary = Vocabulary(VOCABULARY, frozenset(), {})
        bound = bind(self.strategy, self.engine.embedding(), vocabulary, dict(self.policy.learned.named_parameters()))
        rollouts = self.engine.generate(asked, sampling(self.temperature, 24), bound)
        numbers = Numbers(torch.bfloat16 if self.mixed else self.policy.lm.dtype)
        own = OwnModel(self.policy, self.strategy, self.temperature, self.precision, numbers)
        explored = [one.explore for one in asked]
        return compare(own, rollouts, explored, self.trainer(rollouts), Numbers(self.engine.dtype))

    def precision(self):
        return computing_in(self.policy, torch.bfloat16) if self.mixed else nullcontext()

    def trainer(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        with self.precision(), torch.no_grad():
            scores = self.policy(self.packed(pack(self.trained(rollouts))), self.temperature, self.strategy).log_prob
        return list(torch.split(scores, [r.length for r in rollouts]))


@pytest.fixture
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Parts]:
    def made(kind: str = "qwen2", mode: str = "float32", strategy: Exploration = MIXING) -> Parts:
        folder = tmp_path_factory.getbasetemp() / "kinds" / kind
        source = tiny(kind, folder, "bfloat16" if mode == "bfloat16" else "float32")
        engine = TorchEngine(source)
        engine.start(torch.device("cpu"))
        learned = strategy.initial_parameters(source.config().hidden_size)
        return Parts(engine, ScoringModel(source.load(), learned), strategy, mixed=mode == "mixed")

    return made


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", CONFIGS)
def test_every_kind_passes(make: Callable[..., Parts], kind: str, mode: str):
    findings = make(kind, mode).findings()
    assert [(f.path, f.kind) for f in findings] == [
        ("trainer", "plain"), ("trainer", "explored"), ("engine", "plain"), ("engine", "explored"),
    ]  # fmt: skip
    parts = make(kind, mode)
    assert torch.cat([r.log_probs for r in _rollouts(parts)]).mean() < -0.5  # else no fault would show
    for finding in findings:
        assert not finding.deviation.excessive, str(finding)
        if finding.numbers.dtype == torch.float32:
            assert finding.deviation.max < 1e-4
            assert finding.deviation.max_limit < 3e-4


@pytest.mark.parametrize(
    "strategy",
    [
        TokenSampling(),
        GaussianSoftTokens(end_token=None),
        GumbelSoftThinking(end_token=None),
        HybridReasoning(r_min=0.5, r_max=0.9, end_token=None),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
@pytest.mark.parametrize("mode", ["float32", "mixed"])
def test_every_kind_of_strategy_passes(make: Callable[..., Parts], strategy: Exploration, mode: str):
    findings = make("qwen2", mode, strategy).findings()
    assert {f.kind for f in findings} == ({"plain", "explored"} if strategy.mixes else {"plain"})
    assert not [str(f) for f in findings if f.deviation.excessive]


def test_adapters_pass_and_the_model_is_left_as_it_was(make: Callable[..., Parts]):
    parts = make()
    add_adapter(parts.policy.lm, LoraSettings(rank=4, alpha=8))
    parts.policy.train()
    parts.policy.lm.base_model.layers[0].eval()
    state = {name: tensor.clone() for name, tensor in parts.policy.state_dict().items()}
    training = [module.training for module in parts.policy.modules()]
    before = parts.trainer(rollouts := _rollouts(parts))
    assert not [str(f) for f in parts.findings() if f.deviation.excessive]
    assert [module.training for module in parts.policy.modules()] == training
    assert all(torch.equal(tensor, state[name]) for name, tensor in parts.policy.state_dict().items())
    assert all(torch.equal(a, b) for a, b in zip(before, parts.trainer(rollouts), strict=True))


def _rollouts(parts: Parts) -> list[Rollout]:
    bound = bind(parts.strategy, parts.engine.embedding(), Vocabulary(VOCABULARY, frozenset(), {}))
    return parts.engine.generate(requests(VOCABULARY, 64, True), sampling(parts.temperature, 24), bound)


def _ignored_mixtures(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    parts.trained = lambda rollouts: [rollout.without_mixtures() for rollout in rollouts]


def _mixtures_turned_round(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    parts.packed = lambda b: replace(b, record=b.record._replace(weights=b.record.weights.flip(-1)))


def _shifted_responses(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    def shifted(batch: PackedBatch) -> PackedBatch:
        return replace(
            batch,
            positions=batch.positions.index_add(
                0, batch.response_slots, torch.tensor(1).expand_as(batch.response_slots)
            ),
        )

    parts.packed = shifted


def _one_sequence(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    parts.packed = lambda batch: replace(batch, lengths=[sum(batch.lengths)])


def _scored_one_late(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    parts.packed = lambda batch: replace(batch, scored_rows=batch.scored_rows - 1)


def _no_temperature(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    forward = parts.policy.forward
    parts.policy.forward = lambda batch, temperature, *rest: forward(batch, 1.0, *rest)


def _dropout(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    for layer in parts.policy.lm.base_model.layers:
        layer.mlp.register_forward_hook(lambda mlp, inputs, output: dropout(output, 0.1, mlp.training))
    parts.policy.lm.train()


def _not_a_number(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    score = parts.policy._score
    parts.policy._score = lambda *rest: (s := score(*rest))._replace(log_prob=s.log_prob * torch.nan)


def _other_rope(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    parts.engine.lm.model.rotary_emb.inv_freq *= 0.9


def _no_bias(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    for layer in parts.engine.lm.model.layers:
        layer.self_attn.q_proj.bias.data.zero_()


def _dropped_tensor(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    parts.engine.lm.model.layers[1].mlp.down_proj.weight.data.normal_(std=0.3)


def _swapped_tensors(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    first, second = (layer.mlp for layer in parts.engine.lm.model.layers)
    first.up_proj.weight, second.up_proj.weight = second.up_proj.weight, first.up_proj.weight


def _other_rows(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    embedding = parts.engine.lm.get_input_embeddings().weight
    embedding.data = embedding.data.roll(1, 0)


def _other_scale_of_attention(parts: Parts, patch: pytest.MonkeyPatch) -> None:
    for layer in parts.policy.lm.base_model.layers:
        layer.self_attn.scaling *= 1.5  # the model's own attention reads it too
    patch.setattr(policy, "PackedAttention", _Unscaled)


class _Unscaled(policy.PackedAttention):
    def attend(self, module, query, key, value, scale):
        return super().attend(module, query, key, value, scale / 1.5)


FAULTS = [
    _ignored_mixtures, _mixtures_turned_round, _shifted_responses, _one_sequence, _scored_one_late, _no_temperature,
    _dropout, _not_a_number, _other_rope, _no_bias, _dropped_tensor, _swapped_tensors, _other_rows,
    _other_scale_of_attention,
]  # fmt: skip
OF_ENGINE = {_other_rope, _no_bias, _dropped_tensor, _swapped_tensors, _other_rows}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused(make: Callable[..., Parts], monkeypatch: pytest.MonkeyPatch, fault: Callable, mode: str):
    parts = make("qwen2", mode)
    fault(parts, monkeypatch)
    refused = {finding.path for finding in parts.findings() if finding.deviation.excessive}
    assert ("engine" if fault in OF_ENGINE else "trainer") in refused


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["gemma2", "granite", "cohere"])
def test_a_dropped_scale_or_cap_is_refused_in_both(
    make: Callable[..., Parts], monkeypatch: pytest.MonkeyPatch, kind: str, mode: str
):
    monkeypatch.setattr(LogitMap, "of", lambda config: LogitMap())
    findings = make(kind, mode).findings()
    assert {finding.path for finding in findings if finding.deviation.excessive} == {"trainer", "engine"}
    assert max(finding.deviation.mean for finding in findings) > 0.3
