"""Requests and rollouts as JSON, with tensors in base64."""

import base64
import binascii
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.types.distributions import Distributions
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Prefix, Request, Rollout, Sampling, StopReason
from ngrpo.types.support import Support

Message = Mapping[str, Any]
"""A JSON object."""

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32)
}


def tensor_message(tensor: Tensor) -> dict[str, Any]:
    """Returns a tensor as dtype, shape and base64 of its bytes, little-endian."""
    octets = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "base64": base64.b64encode(octets).decode(),
    }


def tensor_of(message: Any) -> Tensor:
    """The inverse of `tensor_message`.

    Raises:
        SettingError: it is no tensor.
    """
    try:
        dtype, shape = _DTYPES[message["dtype"]], [int(size) for size in message["shape"]]
        octets = base64.b64decode(message["base64"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise SettingError("a tensor needs dtype, shape and base64; send it as the server does.") from error
    if min(shape, default=0) < 0 or len(octets) != math.prod(shape) * dtype.itemsize:
        raise SettingError(
            f"a tensor of {message['dtype']} and shape {shape} came with {len(octets)} bytes; send all of it."
        )
    if not octets:
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(bytearray(octets), dtype=dtype).reshape(shape)


def mixture_message(mixture: Mixture) -> dict[str, Any]:
    """Returns a record, channel by channel; those that it does not have are left out."""
    channels = mixture.record._asdict()
    return {
        "positions": tensor_message(mixture.positions),
        **{name: tensor_message(channel) for name, channel in channels.items() if channel is not None},
    }


def mixture_of(message: Any) -> Mixture:
    """The inverse of `mixture_message`.

    Raises:
        SettingError: it is no record.
    """
    if not isinstance(message, Mapping) or not {"positions", "ids", "weights"} <= message.keys():
        raise SettingError("a mixture needs positions, ids and weights; send it as the server does.")
    channels = {name: tensor_of(message[name]) for name in Record._fields if name in message}
    return Mixture(tensor_of(message["positions"]), Record(**channels))


def request_message(request: Request) -> dict[str, Any]:
    """Returns a request; what is as usual is left out."""
    message: dict[str, Any] = {"prompt_ids": list(request.prompt_ids), "key": request.key}
    if not request.explore:
        message["explore"] = False
    if request.prefix is not None:
        message["prefix"] = {"ids": list(request.prefix.ids)}
        if request.prefix.mixture is not None:
            message["prefix"]["mixture"] = mixture_message(request.prefix.mixture)
    for name in ("expected_tokens", "max_new_tokens", "forced_token"):
        if getattr(request, name) is not None:
            message[name] = getattr(request, name)
    if request.likeliest:
        message["likeliest"] = True
    return message


def prefix_of(ids: tuple[int, ...], mixture: Any) -> Prefix:
    """Returns the prefix of a request.

    Raises:
        SettingError: it is none.
    """
    return Prefix(ids, None if mixture is None else mixture_of(mixture))


def sampling_message(sampling: Sampling) -> dict[str, Any]:
    """Returns the settings of a call."""
    return {
        "temperature": sampling.temperature,
        "max_new_tokens": sampling.max_new_tokens,
        "stop_ids": list(sampling.stop_ids),
        **({"distributions": True} if sampling.distributions else {}),
    }


def rollout_message(rollout: Rollout) -> dict[str, Any]:
    """Returns a rollout without its prompt, which the asker has, and without records that it does not have."""
    support, distributions = rollout.support, rollout.distributions
    return {
        "key": rollout.key,
        "response_ids": rollout.response_ids.tolist(),
        "log_probs": tensor_message(rollout.log_probs),
        "mixture": mixture_message(rollout.mixture),
        "stop_reason": str(rollout.stop_reason),
        "prefix_length": rollout.prefix_length,
        **({} if support is None else {"support": [tensor_message(part) for part in support.parts]}),
        **({} if distributions is None else {"distributions": [tensor_message(one) for one in distributions]}),
    }


@contextmanager
def reading() -> Iterator[None]:
    """Says in a sentence that what a server has sent cannot be read.

    Raises:
        SettingError: what is read within is no rollout.
    """
    try:
        yield
    except SettingError:
        raise
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        raise SettingError(
            f"a server has sent a rollout that cannot be read ({type(error).__name__}: {error}); install the same "
            "version of ngrpo there and here."
        ) from error


def rollout_of(message: Message, prompt_ids: tuple[int, ...]) -> Rollout:
    """The inverse of `rollout_message`, for the prompt that it answers.

    Raises:
        SettingError: it is none.
    """
    with reading():
        return Rollout(
            key=message["key"],
            prompt_ids=torch.tensor(prompt_ids, dtype=torch.int64),
            response_ids=torch.tensor(message["response_ids"], dtype=torch.int64),
            log_probs=tensor_of(message["log_probs"]),
            mixture=mixture_of(message["mixture"]),
            stop_reason=StopReason(message["stop_reason"]),
            prefix_length=message["prefix_length"],
            support=Support(*map(tensor_of, message["support"])) if "support" in message else None,
            distributions=Distributions(*map(tensor_of, message["distributions"]))
            if "distributions" in message
            else None,
        )
