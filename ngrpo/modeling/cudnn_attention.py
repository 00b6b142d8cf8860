"""Causal attention inside packed sequences by cuDNN: on Hopper GPUs, where its Python frontend is installed.

PyTorch builds cuDNN's plan for packed sequences anew at each call; here a plan is kept for each number of sequences and
each multiple of `_ROUNDED` that the longest one fits in.
"""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ngrpo.modeling import varlen
from ngrpo.modeling.varlen import packed_attention, segment_attention
from ngrpo.utils.optional_packages import installed

log = logging.getLogger(__name__)

Attention = Callable[[Tensor, Tensor, Tensor, Tensor, int, float], Tensor]

_ROUNDED = 1024
_WIDEST = 128
"""Numbers of a head; cuDNN's backward pass is measured up to there."""
_NEAR = 0.02
"""Most relative distance from attention in float32; rounding to bfloat16 alone makes 0.003."""


def attention_on(device: torch.device) -> Attention:
    """Returns `cudnn_packed_attention` where it can be used, else `packed_attention`, whose arguments both take."""
    return cudnn_packed_attention if _usable(device) else packed_attention


def cudnn_packed_attention(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int, scale: float
) -> Tensor:
    """Attends as `packed_attention`, which takes over where numbers are not bfloat16 or a head has too many."""
    if query.dtype != torch.bfloat16 or query.shape[-1] % 8 or query.shape[-1] > _WIDEST:
        return packed_attention(query, key, value, starts, longest, scale)
    q, k, v = (part.squeeze(0).transpose(0, 1) for part in (query, key, value))
    attended: Tensor = cudnn_attention(q, k, v, starts, longest, scale)[0]
    return attended.transpose(0, 1).unsqueeze(0)


@torch.library.custom_op("ngrpo::cudnn_attention", mutates_args=())
def cudnn_attention(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Returns outputs [N, H, D] and the normaliser of each row, float32 [S, H, longest, rounded up]."""
    rows = {"q": query.contiguous(), "k": key.contiguous(), "v": value.contiguous(), "o": _like(query)}
    stats = query.new_empty(_stats(query, starts, longest), dtype=torch.float32)
    _run("forward", {**rows, "stats": stats}, starts, scale)
    return rows["o"], stats


@cudnn_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int, scale: float) -> tuple[Tensor, Tensor]:
    return _like(query), query.new_empty(_stats(query, starts, longest), dtype=torch.float32)


@torch.library.custom_op("ngrpo::cudnn_attention_backward", mutates_args=())
def cudnn_attention_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    stats: Tensor,
    starts: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of query, key and value."""
    parts = {"do": gradient, "q": query, "k": key, "v": value, "o": output}
    made = {"dq": _like(query), "dk": _like(key), "dv": _like(value)}
    rows = {name: part.contiguous() for name, part in parts.items()}
    _run("backward", {**rows, **made, "stats": stats}, starts, scale)
    return made["dq"], made["dk"], made["dv"]


@cudnn_attention_backward.register_fake
def _(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    stats: Tensor,
    starts: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return _like(query), _like(key), _like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, starts, _, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, *output, starts)


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    made: tuple[Tensor, ...] = cudnn_attention_backward(gradient, *ctx.saved_tensors, ctx.scale)
    return (*made, None, None, None)


cudnn_attention.register_autograd(_backward, setup_context=_keep)


def _like(part: Tensor) -> Tensor:
    return part.new_empty(part.shape)


def _stats(query: Tensor, starts: Tensor, longest: int) -> tuple[int, int, int]:
    return starts.shape[0] - 1, query.shape[1], (longest + _ROUNDED - 1) // _ROUNDED * _ROUNDED


def _run(direction: str, tensors: dict[str, Tensor], starts: Tensor, scale: float) -> None:
    """Executes a plan on rows [N, H, D] of S sequences; outputs are written into the tensors."""
    query, key = tensors["q"], tensors["k"]
    sequences, heads, longest = tensors["stats"].shape
    width = query.shape[2]
    graph, places = _plan(direction, query.device, sequences, longest, heads, key.shape[1], width, scale)
    lengths = starts.diff()
    bounds = {"queries": starts * (heads * width), "keys": starts * (key.shape[1] * width)}
    given = {**tensors, **bounds, "lengths": lengths, "key_lengths": lengths}
    workspace = query.new_empty(max(1, graph.get_workspace_size()), dtype=torch.uint8)
    graph.execute({places[name]: tensor for name, tensor in given.items()}, workspace, handle=_handle(query.device))


@cache
def _plan(
    direction: str,
    device: torch.device,
    sequences: int,
    longest: int,
    heads: int,
    shared: int,
    width: int,
    scale: float,
) -> tuple[Any, dict[str, Any]]:
    """Builds the plan of one direction, and returns it with its tensors by name."""
    import cudnn

    half, single, whole = cudnn.data_type.BFLOAT16, cudnn.data_type.FLOAT, cudnn.data_type.INT32
    graph = cudnn.pygraph(
        io_data_type=half, intermediate_data_type=single, compute_data_type=single, handle=_handle(device)
    )
    of = {"q": heads, "o": heads, "do": heads, "dq": heads, "k": shared, "v": shared, "dk": shared, "dv": shared}
    bounds = {name: _numbers(graph, name, sequences + 1, whole) for name in ("queries", "keys")}
    lengths = {name: _numbers(graph, name, sequences, whole) for name in ("lengths", "key_lengths")}

    def shape(name: str) -> dict[str, list[int]]:
        count = of[name]
        return {
            "dim": [sequences, count, longest, width],
            "stride": [longest * count * width, width, count * width, 1],
        }

    def bounded(name: str, tensor: Any) -> Any:
        tensor.set_ragged_offset(bounds["keys" if name in ("k", "v", "dk", "dv") else "queries"])
        return tensor

    def given(name: str) -> Any:
        return bounded(name, graph.tensor(name=name, data_type=half, **shape(name)))

    def made(name: str, tensor: Any) -> Any:
        tensor.set_output(True).set_dim(shape(name)["dim"]).set_stride(shape(name)["stride"])
        return bounded(name, tensor)

    rows = {"dim": [sequences, heads, longest, 1], "stride": [heads * longest, longest, 1, 1]}
    settings = {
        "attn_scale": scale,
        "use_causal_mask": True,
        "use_padding_mask": True,
        "seq_len_q": lengths["lengths"],
        "seq_len_kv": lengths["key_lengths"],
    }
    places = {name: given(name) for name in ("q", "k", "v")}
    if direction == "forward":
        output, stats = graph.sdpa(**places, generate_stats=True, **settings)
        stats.set_output(True).set_data_type(single).set_dim(rows["dim"]).set_stride(rows["stride"])
        places |= {"o": made("o", output), "stats": stats}
    else:
        places |= {"o": given("o"), "do": given("do"), "stats": graph.tensor(name="stats", data_type=single, **rows)}
        inputs = {("dO" if name == "do" else name): tensor for name, tensor in places.items()}
        gradients = graph.sdpa_backward(**inputs, **settings)
        places |= {n: made(n, tensor) for n, tensor in zip(("dq", "dk", "dv"), gradients, strict=True)}
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    graph.build_plans()
    return graph, {**places, **bounds, **lengths}


def _numbers(graph: Any, name: str, count: int, data_type: Any) -> Any:
    return graph.tensor(name=name, dim=[count, 1, 1, 1], stride=[1, 1, 1, 1], data_type=data_type)


@cache
def _made_handle(device: torch.device) -> Any:
    import cudnn

    return cudnn.create_handle()


def _handle(device: torch.device) -> Any:
    """Returns the device's handle, set to its current stream."""
    import cudnn

    handle = _made_handle(device)
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream(device).cuda_stream)
    return handle


@cache
def _usable(device: torch.device) -> bool:
    """Says whether to use cuDNN: no flash-attn is installed, the frontend is, and what it computes was compared."""
    if device.type != "cuda" or varlen._FLASH_ATTN is not None or not installed("cudnn"):
        return False
    if torch.cuda.get_device_capability(device)[0] != 9:  # measured on no other
        return False
    try:
        far = _distance(device)
    except Exception as error:
        log.warning("cuDNN's attention fails, and PyTorch's is used (%s)", str(error).strip().split("\n")[0])
        return False
    if far > _NEAR:
        log.warning("cuDNN's attention is off by %.1e, and PyTorch's is used", far)
    return far <= _NEAR


@torch.enable_grad()
def _distance(device: torch.device) -> float:
    """Returns the largest relative distance of outputs and gradients from attention in float32, on made numbers."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.tensor([0, 70, 71, 200], dtype=torch.int32, device=device)
    shapes = [(1, heads, 200, 64) for heads in (4, 2, 2, 4)]
    q, k, v, up = (torch.randn(shape, generator=generator).to(device, torch.bfloat16) for shape in shapes)
    half = [part.requires_grad_() for part in (q, k, v)]
    single = [part.detach().float().requires_grad_() for part in half]
    expected: Tensor = segment_attention(*single, starts, 0.125)
    made = cudnn_packed_attention(q, k, v, starts, 129, 0.125)
    wanted = expected, *torch.autograd.grad(expected, single, up.float())
    found = made, *torch.autograd.grad(made, half, up)
    return max(float((a.float() - b).detach().norm() / b.detach().norm()) for a, b in zip(found, wanted, strict=True))
