"""Checksums, and weight transfers that are checked and refused; with stand-ins for vLLM's workers."""

import copy
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ngrpo.errors import RunError
from ngrpo.rollout.vllm import checksum as module
from ngrpo.rollout.vllm import weight_senders
from ngrpo.rollout.vllm.checked_loading import CheckedModel
from ngrpo.rollout.vllm.checksum import checksums, read_together
from ngrpo.rollout.vllm.coverage import mark, unwritten
from ngrpo.rollout.vllm.read_tensors import ReadTensors
from ngrpo.rollout.vllm.weight_senders import ByReference, BySharedMemory, shared_view
from ngrpo.rollout.vllm.weight_transfer import INCOMPLETE, WeightTransfer

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(params=DTYPES, ids=str)
def weight(request: pytest.FixtureRequest) -> Tensor:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(0)).to(request.param)


def checksum(tensor: Tensor) -> int:
    return checksums([tensor])[0]


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
    "every second sign": lambda w: w * torch.tensor([1.0, -1.0]).repeat(4).to(w.dtype),
    "two signs": lambda w: _with(_with(w, (3, 3), -float(w[3, 3])), (1, 7), -float(w[1, 7])),
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


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64, torch.int8], ids=str)
def test_a_checksum_is_the_sum_that_it_says_it_is(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype):
    module._kept_weights.cache_clear()
    monkeypatch.setattr(module, "_CHUNK", 4)
    weight = torch.arange(-23, 24).to(dtype)
    weights = module._weights(torch.device("cpu")).tolist()
    octets = weight.view(torch.uint8).tolist()
    octets += [0] * (-len(octets) % 4)
    words = [int.from_bytes(octets[i : i + 4], "little", signed=True) for i in range(0, len(octets), 4)]
    expected = sum(weights[i % 4] * word * (2 * (i // 4) * (i // 4 + 7) + 1) for i, word in enumerate(words))
    assert (checksum(weight) - expected) % 2**64 == 0
    assert all(w % 2 for w in weights)
    chunk = 16 // weight.element_size()
    swapped = torch.cat([weight[chunk : 2 * chunk], weight[:chunk], weight[2 * chunk :]])  # whole chunks
    assert checksum(swapped) != checksum(weight)
    module._kept_weights.cache_clear()


def test_a_checksum_is_the_same_where_chunks_are_summed_together(monkeypatch: pytest.MonkeyPatch):
    module._kept_weights.cache_clear()
    monkeypatch.setattr(module, "_CHUNK", 4)
    words, none = torch.arange(-20, 23, dtype=torch.int32), torch.zeros(0)
    expected, split = checksum(words), torch.split
    monkeypatch.setattr(module.torch, "split", lambda tensor, size: split(tensor, 4 * size))  # as on a GPU
    assert checksums([words, none, words[:40], words]) == [expected, 0, checksum(words[:40]), expected]
    module._kept_weights.cache_clear()


def test_many_values_are_read_in_their_order_after_one_wait(monkeypatch: pytest.MonkeyPatch):
    waits, tolist = [], Tensor.tolist
    monkeypatch.setattr(Tensor, "tolist", lambda self: waits.append(len(self)) or tolist(self))
    assert read_together([torch.tensor(3), torch.tensor([1]), torch.tensor(2)]) == [3, 1, 2]
    assert read_together([]) == []
    weights = [torch.randn(5, 3) for _ in range(7)]
    waits.clear()
    assert checksums(weights) == [checksums([weight])[0] for weight in weights]
    assert waits[0] == 7


def test_a_checksum_does_not_depend_on_where_a_tensor_lies():
    weight = torch.randn(9).bfloat16()
    assert checksum(weight[1:6]) == checksum(weight[1:6].clone())
    assert checksum(weight[::2]) == checksum(weight[::2].clone())
    assert checksum(torch.tensor(2.0)) == checksum(torch.tensor([2.0]))


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


class Model(nn.Module):
    """A served model that has two matrices as one, as vLLM fuses projections."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = nn.Parameter(torch.zeros(4, 3))
        self.norm = nn.Parameter(torch.zeros(3))
        self.register_buffer("scale", torch.ones(2))
        self.register_buffer("cache", torch.ones(2), persistent=False)
        self.layout: Callable[[Tensor], Tensor] = lambda tensor: tensor
        self.biased = False

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        for name, tensor in weights:
            if name == "norm":
                self.norm.copy_(tensor)
            elif name.endswith("bias"):  # as vLLM's loaders do
                if self.biased:
                    self.norm.add_(tensor)
            else:
                first = 0 if name == "q" else 2
                self.fused[first : first + 2] = self.layout(tensor)


class Workers:
    """A stand-in for vLLM's ``LLM`` with two workers, one of which gets what ``faulty`` makes of a bucket.

    As in vLLM, a session must be ended before the next one, and one that has failed is over on its worker only.
    """

    def __init__(self) -> None:
        self.models = [Model(), Model()]
        self.checked = [CheckedModel(model) for model in self.models]
        self.faulty: Callable[[dict[str, Tensor]], list[tuple[str, Tensor]]] = lambda tensors: list(tensors.items())
        self.active = [False, False]
        self.version = "default"

    def start_weight_update(self) -> None:
        for number, checked in enumerate(self.checked):
            assert not self.active[number]
            self.active[number] = True
            checked.expect()

    def update_weights(self, request: dict[str, Any]) -> None:
        bucket = request["update_info"]["weights"]
        self.checked[0].load_weights(copy.deepcopy(bucket))
        try:
            self.checked[1].load_weights(self.faulty(dict(bucket)))
        except BaseException:
            self.active[1] = False
            raise

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        ended = all(self.active)
        self.active = [False, False]
        assert ended
        self.version = weight_version or self.version

    def update_weight_version(self, new_version: str) -> None:
        self.version = new_version

    def get_weight_version(self) -> str:
        return self.version

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        names = {
            "ngrpo_weight_fault": "fault", "ngrpo_served_weights": "served", "ngrpo_unread_weights": "unread",
        }  # fmt: skip
        return [getattr(checked, names[method])(*args) for checked in self.checked]


@pytest.fixture
def weights() -> dict[str, Tensor]:
    return {"q": torch.randn(2, 3), "k": torch.randn(2, 3), "norm": torch.randn(3)}


@pytest.fixture
def workers() -> Workers:
    return Workers()


@pytest.fixture
def transfer(workers: Workers) -> WeightTransfer:
    return WeightTransfer(workers, ByReference())


def test_weights_arrive_on_every_worker(transfer: WeightTransfer, workers: Workers, weights: dict[str, Tensor]):
    transfer.send(weights.items(), torch.float32)
    transfer.send_unchanged(weights.items(), torch.float32, "folder")
    for model in workers.models:
        assert torch.equal(model.fused, torch.cat([weights["q"], weights["k"]]))


FAULTS: dict[str, Callable[[dict[str, Tensor]], list[tuple[str, Tensor]]]] = {
    "dropped": lambda t: [(name, tensor) for name, tensor in t.items() if name != "q"],
    "all but one dropped": lambda t: [("norm", t["norm"])],
    "twice": lambda t: [*t.items(), ("q", t["q"])],
    "swapped": lambda t: list((t | {"q": t["k"], "k": t["q"]}).items()),
    "negated": lambda t: list((t | {"q": -t["q"]}).items()),
    "not a number": lambda t: list((t | {"q": t["q"] * float("nan")}).items()),
    "zeros": lambda t: list((t | {"q": t["q"] * 0}).items()),
    "stale": lambda t: list((t | {"q": torch.arange(6.0).view(2, 3)}).items()),
    "permuted": lambda t: list((t | {"q": t["q"].flip(0)}).items()),
    "renamed": lambda t: [(name.replace("q", "unknown"), tensor) for name, tensor in t.items()],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_on_any_worker_is_named(
    transfer: WeightTransfer, workers: Workers, weights: dict[str, Tensor], fault: str
):
    transfer.send(weights.items(), torch.float32)
    sound, workers.faulty = workers.faulty, FAULTS[fault]
    with pytest.raises(RuntimeError, match=r"vLLM received other weights than were sent: .*\b(q|k)\b"):
        transfer.send(weights.items(), torch.float32)
    with pytest.raises(RuntimeError, match="since a transfer failed; call sync_weights again"):
        transfer.require_whole()
    assert transfer.version == INCOMPLETE
    workers.faulty = sound
    transfer.send(weights.items(), torch.float32)
    transfer.require_whole()


def _cut_off(tensors: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    raise OSError("the connection was lost")


@pytest.mark.parametrize("where", ["worker", "trainer"])
def test_a_transfer_that_breaks_off_leaves_an_engine_that_says_so_until_the_next(
    transfer: WeightTransfer, workers: Workers, weights: dict[str, Tensor], where: str
):
    def tensors() -> Iterator[tuple[str, Tensor]]:
        yield "q", weights["q"]
        if where == "trainer":
            raise OSError("a rank was lost")
        yield "norm", weights["norm"]

    if where == "worker":
        workers.faulty = _cut_off
    with pytest.raises(OSError, match="was lost"):
        transfer.send(tensors(), torch.float32)
    with pytest.raises(RuntimeError, match="does not serve a whole set of weights"):
        transfer.require_whole()
    assert transfer.version == INCOMPLETE
    assert all(unwritten(model) for model in workers.models)  # nothing old is left to be taken for new
    workers.faulty = lambda t: list(t.items())
    transfer.send(weights.items(), torch.float32)
    transfer.require_whole()
    assert not any(unwritten(model) for model in workers.models)


def test_a_version_names_the_weights(transfer: WeightTransfer, weights: dict[str, Tensor]):
    assert transfer.version == "default"
    transfer.send(weights.items(), torch.float32)
    first = transfer.version
    transfer.send(reversed(weights.items()), torch.float32)
    assert transfer.version == first
    transfer.send((weights | {"norm": -weights["norm"]}).items(), torch.float32)
    assert transfer.version != first


def test_a_parameter_that_nothing_came_for_is_named(transfer: WeightTransfer, weights: dict[str, Tensor]):
    del weights["k"]
    with pytest.raises(RuntimeError, match="vLLM serves parameters that no weights came for: fused"):
        transfer.send(weights.items(), torch.float32)
    with pytest.raises(RunError, match=r"model\.path=folder as they are trained \(.*no weights came for: fused\); set"):
        transfer.send_unchanged(weights.items(), torch.float32, "folder")


def test_a_tensor_that_no_worker_has_a_place_for_is_named(
    transfer: WeightTransfer, workers: Workers, weights: dict[str, Tensor]
):
    """Zeros when the model is new, it would change nothing that a start compares."""
    weights |= {"bias": torch.zeros(3)}
    with pytest.raises(RuntimeError, match="vLLM serves nothing of weights that were sent: bias$"):
        transfer.send(weights.items(), torch.float32)
    with pytest.raises(RunError, match=r"model\.path=folder as they are trained \(.* that were sent: bias\); set"):
        transfer.send_unchanged(weights.items(), torch.float32, "folder")
    workers.models[1].biased = True
    transfer.send(weights.items(), torch.float32)
    transfer.require_whole()


class Wrapped(Tensor):
    """A tensor without memory of its own, as DTensor is and quantised weights are."""

    within: Tensor

    @staticmethod
    def __new__(cls, within: Tensor) -> "Wrapped":
        made: Wrapped = Tensor._make_wrapper_subclass(cls, within.shape, dtype=within.dtype)
        made.within = within
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*(one.within if isinstance(one, Wrapped) else one for one in args), **(kwargs or {}))


READERS: dict[str, Callable[[Tensor], Any]] = {
    "copied": lambda w: torch.empty(2, 3).copy_(w.T),
    "a part": lambda w: torch.empty(2).copy_(w[1:, 0]),
    "cast": lambda w: w.bfloat16(),
    "split": lambda w: torch.empty(1, 2).copy_(w.chunk(3)[2]),
    "its bits": lambda w: w.view(torch.int32) + 0,
    "in a list": lambda w: torch.cat([torch.zeros(1, 2), w]),
    "through NumPy": lambda w: torch.from_numpy(w[1:].numpy()) + 0,
    "into a wrapper": lambda w: torch.add(Wrapped(torch.zeros(3, 2)), w),
}
PASSING: dict[str, Callable[[Tensor], Any]] = {
    "not at all": lambda w: None,
    "its shape": lambda w: (w.shape, w.dtype, w.numel()),
    "views": lambda w: [w.T, w[1:], w.chunk(3), w.view(torch.int32), w.detach().flatten()],
    "what lies beside it": lambda w: torch.empty(2).copy_(w.as_strided((2,), (1,), 6)),
}


@pytest.mark.parametrize("way", [*READERS, *PASSING])
def test_whether_a_tensor_is_read(way: str):
    weight = torch.randn(4, 2)[:3]
    with ReadTensors({"w": weight, "other": torch.ones(2), "empty": torch.empty(0)}) as read:
        (READERS | PASSING)[way](weight)
    assert read.unread == ({"other"} if way in READERS else {"w", "other"})


def test_all_that_share_what_is_read_are_read():
    """A whole and its parts, of which one lies before the address that an operation starts from."""
    whole = torch.randn(6, 2)
    tensors = {"whole": whole, "first": whole[:2], "middle": whole[2:4], "again": whole[2:4], "last": whole[4:]}
    with ReadTensors(tensors) as read:
        assert read.unread == set(tensors)
        torch.empty(1, 2).copy_(whole[3:4])
    assert read.unread == {"first", "last"}


def test_a_buffer_of_the_folder_that_changes_is_named(
    transfer: WeightTransfer, workers: Workers, weights: dict[str, Tensor]
):
    workers.models[1].cache.zero_()  # made at start, and of no checkpoint
    transfer.send(weights.items(), torch.float32)
    workers.models[1].scale.neg_()
    with pytest.raises(RuntimeError, match="vLLM serves buffers that changed since it loaded them: scale$"):
        transfer.send(weights.items(), torch.float32)


@pytest.mark.parametrize("change", ["rows permuted", "negated", "zeros"])
def test_a_loader_that_forgets_a_layout_is_refused(
    transfer: WeightTransfer, workers: Workers, weights: dict[str, Tensor], change: str
):
    changes = {"rows permuted": lambda w: w.flip(1), "negated": torch.neg, "zeros": torch.zeros_like}
    transfer.send(weights.items(), torch.float32)
    for model in workers.models:  # rearranged, as expert weights are on a CPU
        model.layout = changes[change]
    with pytest.raises(RunError) as refused:
        transfer.send_unchanged(weights.items(), torch.float32, "folder")
    assert str(refused.value) == (
        "vLLM would not serve the weights of model.path=folder as they are trained (weights that are sent as they were "
        "loaded change fused); set rollout=torch."
    )
    with pytest.raises(RuntimeError, match="does not serve a whole set of weights"):
        transfer.require_whole()


@pytest.mark.parametrize("segment", [64, 128, 1 << 20])
def test_shared_memory_carries_tensors_of_any_size_and_kind_in_parts(monkeypatch: pytest.MonkeyPatch, segment: int):
    monkeypatch.setattr(weight_senders, "_SEGMENT_BYTES", segment)
    bucket = [
        ("matrix", torch.randn(5, 7)),
        ("half", torch.randn(3).bfloat16()),
        ("transposed", torch.randn(4, 6).T),
        ("number", torch.tensor(2.5)),
        ("nothing", torch.empty(0, 3)),
        ("whole", torch.arange(9)),
    ]
    came: dict[str, Tensor] = {}
    segments: list[str] = []

    def update(info: dict[str, Any]) -> None:
        memory = SharedMemory(info["memory"])
        segments.append(memory.name)
        kinds = zip(info["names"], info["dtypes"], info["shapes"], info["offsets"], strict=True)
        for name, dtype, shape, offset in kinds:
            came[name] = shared_view(memory, getattr(torch, dtype), shape, offset).clone()
        memory.close()

    BySharedMemory().send(bucket, update)
    assert list(came) == [name for name, _ in bucket]
    for name, tensor in bucket:
        assert came[name].dtype == tensor.dtype
        assert torch.equal(came[name], tensor)
    assert (len(segments) > 1) == (segment < 1 << 20)
    assert len(set(segments)) == 1
    with pytest.raises(FileNotFoundError):
        SharedMemory(segments[0])


def test_shared_memory_is_gone_when_a_worker_fails():
    names: list[str] = []

    def update(info: dict[str, Any]) -> None:
        names.append(info["memory"])
        raise OSError("the worker was lost")

    with pytest.raises(OSError, match="worker was lost"):
        BySharedMemory().send([("q", torch.ones(3))], update)
    with pytest.raises(FileNotFoundError):
        SharedMemory(names[0])
