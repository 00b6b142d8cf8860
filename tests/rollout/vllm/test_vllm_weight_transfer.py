"""Checksums, and weight transfers that are checked and refused; with stand-ins for vLLM's workers."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ngrpo.errors import RunError
from ngrpo.rollout.vllm import checksum as module
from ngrpo.rollout.vllm.checksum import checksum
from ngrpo.rollout.vllm.coverage import mark, unwritten
from ngrpo.rollout.vllm.weight_transfer import WeightTransfer

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(params=DTYPES, ids=str)
def weight(request: pytest.FixtureRequest) -> Tensor:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(0)).to(request.param)


def _with(weight: Tensor, at: tuple[int, int], value: float) -> Tensor:
    other = weight.clone()
    other[at] = value
    return other


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "rows permuted": lambda w: w[torch.tensor([0, 2, 1, 3, 4, 5])],
    "columns permuted": lambda w: w.flip(1),
    "read as another layout": lambda w: w.reshape(8, 6).T.reshape(6, 8),
    "one sign": lambda w: _with(w, (3, 3), -float(w[3, 3])),
    "all signs": lambda w: -w,
    "not a number": lambda w: _with(w, (0, 0), float("nan")),
    "all not a number": lambda w: torch.full_like(w, float("nan")),
    "infinite": lambda w: _with(w, (5, 7), float("inf")),
    "zeros": torch.zeros_like,
    "shorter": lambda w: w[:5],
    "a little": lambda w: _with(w, (2, 2), float(w[2, 2]) * 1.01),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_checksum_sees_every_change(weight: Tensor, change: str):
    assert checksum(weight.clone()) == checksum(weight)
    assert checksum(CHANGES[change](weight)) != checksum(weight)


def test_a_checksum_tells_zeros_apart_and_knows_a_nan_again():
    assert checksum(torch.tensor([0.0])) != checksum(torch.tensor([-0.0]))
    nan = torch.tensor([float("nan"), 1.0])
    assert checksum(nan) == checksum(nan.clone())


def test_a_checksum_is_the_sum_that_it_says_it_is(monkeypatch: pytest.MonkeyPatch):
    module._weights.cache_clear()
    monkeypatch.setattr(module, "_CHUNK", 4)
    weight = torch.randn(11)
    weights = module._weights(torch.device("cpu")).tolist()
    expected = sum(
        weights[i % 4] * bits * (2 * (i // 4) * (i // 4 + 7) + 1)
        for i, bits in enumerate(weight.view(torch.int32).tolist())
    )
    assert (checksum(weight) - expected) % 2**64 == 0
    assert all(w % 2 for w in weights)
    swapped = torch.cat([weight[4:8], weight[:4], weight[8:]])  # whole chunks
    assert checksum(swapped) != checksum(weight)
    module._weights.cache_clear()


def test_what_is_not_written_keeps_its_mark():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1).bfloat16())
    mark(model)
    assert all(parameter.isnan().all() for parameter in model.parameters())
    assert unwritten(model) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    model[0].weight.data.fill_(float("nan"))  # another NaN
    model[0].bias.data.zero_()
    model[1].weight.data[0, 0] = 0.0
    model[1].bias.data.zero_()
    assert unwritten(model) == ["1.weight"]


class Worker:
    """A worker that serves its two matrices as one, as vLLM fuses projections; ``faulty`` changes what arrives."""

    def __init__(self) -> None:
        self.model = nn.ParameterDict({"fused": nn.Parameter(torch.zeros(4, 3)), "norm": nn.Parameter(torch.zeros(3))})
        self.faulty: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda tensors: tensors
        self.layout: Callable[[Tensor], Tensor] = lambda tensor: tensor

    def ngrpo_expect_weights(self) -> None:
        self.received: dict[str, int] = {}
        mark(self.model)

    def ngrpo_load_weights(self, bucket: list[tuple[str, Tensor]]) -> None:
        for name, tensor in self.faulty(dict(bucket)).items():
            self.received[name] = checksum(tensor)
            if name == "norm":
                self.model["norm"].data.copy_(tensor)
            else:
                first = 0 if name == "q" else 2
                self.model["fused"].data[first : first + 2] = self.layout(tensor)

    def ngrpo_received_weights(self) -> dict[str, int]:
        return self.received

    def ngrpo_unwritten_weights(self) -> list[str]:
        return unwritten(self.model)

    def ngrpo_served_weights(self) -> dict[str, int]:
        return {name: checksum(parameter) for name, parameter in self.model.named_parameters()}


@pytest.fixture
def weights() -> dict[str, Tensor]:
    return {"q": torch.randn(2, 3), "k": torch.randn(2, 3), "norm": torch.randn(3)}


@pytest.fixture
def workers() -> list[Worker]:
    return [Worker(), Worker()]


@pytest.fixture
def transfer(workers: list[Worker]) -> WeightTransfer:
    def call(method: str, *args: Any) -> list[Any]:
        return [getattr(worker, method)(*copy.deepcopy(args)) for worker in workers]

    return WeightTransfer(call, None)


def test_weights_arrive_on_every_worker(transfer: WeightTransfer, workers: list[Worker], weights: dict[str, Tensor]):
    transfer.send(weights.items(), torch.float32)
    transfer.send_unchanged(weights.items(), torch.float32, "folder")
    for worker in workers:
        assert torch.equal(worker.model["fused"], torch.cat([weights["q"], weights["k"]]))


FAULTS: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "dropped": lambda t: {name: tensor for name, tensor in t.items() if name != "q"},
    "all but one dropped": lambda t: {"norm": t["norm"]},
    "swapped": lambda t: t | {"q": t["k"], "k": t["q"]},
    "sign": lambda t: t | {"q": -t["q"]},
    "not a number": lambda t: t | {"q": t["q"] * float("nan")},
    "permuted": lambda t: t | {"q": t["q"].flip(0)},
    "renamed": lambda t: {name.replace("q", "unknown"): tensor for name, tensor in t.items()},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_on_any_worker_is_named(
    transfer: WeightTransfer, workers: list[Worker], weights: dict[str, Tensor], fault: str
):
    transfer.send(weights.items(), torch.float32)
    workers[1].faulty = FAULTS[fault]
    with pytest.raises(RuntimeError, match=r"vLLM received other weights than were sent: .*\b(q|k)\b"):
        transfer.send(weights.items(), torch.float32)


def test_a_parameter_that_nothing_came_for_is_named(transfer: WeightTransfer, weights: dict[str, Tensor]):
    del weights["k"]
    with pytest.raises(RuntimeError, match="vLLM serves parameters that no weights came for: fused"):
        transfer.send(weights.items(), torch.float32)
    with pytest.raises(RunError, match=r"model\.path=folder as they are trained \(.*no weights came for: fused\); set"):
        transfer.send_unchanged(weights.items(), torch.float32, "folder")


def test_a_loader_that_forgets_a_layout_is_refused(
    transfer: WeightTransfer, workers: list[Worker], weights: dict[str, Tensor]
):
    for worker in workers:  # rearranged after loading, as expert weights are on a CPU
        worker.layout = lambda tensor: tensor.flip(1)
    transfer.send(weights.items(), torch.float32)
    for worker in workers:
        worker.layout = lambda tensor: tensor
    with pytest.raises(RunError) as refused:
        transfer.send_unchanged(weights.items(), torch.float32, "folder")
    assert str(refused.value) == (
        "vLLM would not serve the weights of model.path=folder as they are trained (weights that are sent as they were "
        "loaded change fused); set rollout=torch."
    )
