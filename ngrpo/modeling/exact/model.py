"""A language model made exact: all that it computes gives a token the same numbers in any batch."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from ngrpo.errors import SettingError
from ngrpo.modeling.exact.calls import ExactCalls
from ngrpo.modeling.exact.linear import exact_linear
from ngrpo.modeling.exact.norm import exact_rms_norm
from ngrpo.modeling.exact.number_by_number import number_by_number

EXACT = ("llama", "mistral", "qwen2", "qwen3")
"""``model_type`` of the models that can be exact; the tests compare each."""

ACTIVATIONS = ("gelu", "gelu_pytorch_tanh", "relu", "silu", "swish")
"""Their ``hidden_act``: each one function of PyTorch's."""

_NORM = "RMSNorm"
_ACTIVATION = "act_fn"


def make_exact(lm: PreTrainedModel) -> None:
    """Replaces, in place, how the modules of a model compute; parameters keep their names.

    Trainer and engine do this to their own copies, which then compute the same log-probs bit for bit.

    Raises:
        SettingError: the model is of a type that was not tried.
    """
    check_exact_model(lm.config)
    for name, module in lm.named_modules():
        module._is_exact = True
        made = _replacement(name.rpartition(".")[2], module)
        if made is not None:
            module.forward = made


def is_exact(module: nn.Module) -> bool:
    """Says whether a model, or a part of it, was made exact."""
    return getattr(module, "_is_exact", False) is True


def exact_calls(module: nn.Module) -> AbstractContextManager[Any]:
    """Returns the context in which a strategy makes the inputs of a model."""
    return ExactCalls() if is_exact(module) else nullcontext()


def check_exact_model(config: PretrainedConfig) -> None:
    """Refuses models whose parts have no exact form.

    Raises:
        SettingError: the model's type is none of `EXACT`, or its activation none of `ACTIVATIONS`.
    """
    own_code = not type(config).__module__.startswith("transformers.")
    if config.model_type not in EXACT or own_code:
        raise SettingError(
            f"rollout.exact=true is known to hold for models of type {', '.join(EXACT)}, and model.path="
            f"{config._name_or_path} is of type {config.model_type}{' by code of its own' * own_code}; set "
            "rollout.exact=false, or choose another model."
        )
    if config.hidden_act not in ACTIVATIONS:
        raise SettingError(
            f"rollout.exact=true is known to hold for the activations {', '.join(ACTIVATIONS)}, and model.path="
            f"{config._name_or_path} has hidden_act={config.hidden_act} in its config.json; set rollout.exact=false, "
            "or choose another model."
        )


def _replacement(name: str, module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    if isinstance(module, nn.Linear):
        return partial(_linear, module)
    if name == _ACTIVATION:
        return partial(number_by_number, module.forward)
    return partial(_norm, module) if type(module).__name__.endswith(_NORM) else None


def _linear(module: nn.Linear, inputs: Tensor) -> Tensor:
    return exact_linear(inputs, module.weight, module.bias)


def _norm(module: Any, hidden_states: Tensor) -> Tensor:
    return exact_rms_norm(hidden_states, module.weight, module.variance_epsilon)
