"""The attachment of a loaded vLLM model: an embedding that mixes, a model state, and a view of its head's input.

vLLM asks a model for its own model state (``get_model_state_cls``), and hands every model the hidden states of the
sampled rows (``compute_logits``). Both are set on the model that was loaded, so that other engines of the process,
which may serve the same class, stay as they were.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ngrpo.rollout.vllm.embedding import UnmixableModelError, input_embedding
from ngrpo.rollout.vllm.mixing_state import MixingState
from ngrpo.rollout.vllm.settings import MixingSettings


class HeadInput:
    """The hidden states of the sampled rows, after the final norm, as the model's head gets them before each sampling.

    Args:
        model: the loaded vLLM model.
    """

    def __init__(self, model: Any) -> None:
        self._rows: Tensor | None = None
        compute_logits = model.compute_logits

        def noted(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
            self._rows = hidden_states
            return compute_logits(hidden_states, *args, **kwargs)

        model.compute_logits = noted

    def take(self) -> Tensor | None:
        """Returns those of the last call, float [R, d], and forgets them."""
        rows, self._rows = self._rows, None
        return rows


@dataclass
class Attachment:
    """What lies with a model.

    Attributes:
        mixing: the worker's mixing state.
        head: what its head got.
        runner: the adapter of the runner that runs the model, once there is one.
    """

    mixing: MixingState
    head: HeadInput
    runner: Any = None


def attach(model: Any, vllm_config: Any, settings: MixingSettings) -> None:
    """Prepares a loaded model for mixtures, or notes why that cannot be, for `attachment_of` to raise.

    Raised while vLLM starts, in a process of its own perhaps, it would reach nobody in words.
    """
    try:
        model.ngrpo_attachment = _attached(model, vllm_config, settings)
    except UnmixableModelError as error:
        model.ngrpo_attachment = error


def attachment_of(model: nn.Module) -> Attachment:
    """Returns what was attached to a model.

    Raises:
        UnmixableModelError: mixtures cannot enter it.
    """
    found: Any = model.ngrpo_attachment
    if isinstance(found, UnmixableModelError):
        raise found
    made: Attachment = found
    return made


def _attached(model: Any, vllm_config: Any, settings: MixingSettings) -> Attachment:
    if (obstacle := _obstacle(vllm_config)) is not None:
        raise UnmixableModelError(obstacle)
    config = vllm_config.model_config
    if hasattr(model, "get_model_state_cls") or config.is_hybrid or config.is_attention_free:
        raise UnmixableModelError("it keeps a state of its own beside the attention's cache")
    if config.is_encoder_decoder:
        raise UnmixableModelError("it has an encoder")
    device = input_embedding(model).weight.device
    largest_graph = vllm_config.compilation_config.max_cudagraph_capture_size or 0
    tokens = max(vllm_config.scheduler_config.max_num_batched_tokens, largest_graph)
    if vllm_config.use_v2_model_runner:
        from ngrpo.rollout.vllm.runner_v2 import MixingModelState

        model.get_model_state_cls = lambda: MixingModelState
    elif device.type != "cpu":
        raise UnmixableModelError("vLLM would run it by its old model runner, which mixes on a CPU only")
    return Attachment(MixingState(model, settings, tokens, device), HeadInput(model))


def _obstacle(vllm_config: Any) -> str | None:
    """Returns why no model can be mixed into with a configuration, as that of ``vllm serve`` may be; None if it can."""
    parallel = vllm_config.parallel_config
    found = {
        "speculative decoding accepts tokens whose mixtures were never made": vllm_config.speculative_config,
        "records are made on a pipeline's last stage and read on its first": parallel.pipeline_parallel_size > 1,
        "each part of a divided batch would be fed the mixtures of the first": parallel.use_ubatching,
        "a worker that has a part of a prompt would be fed mixtures of the whole": (
            parallel.prefill_context_parallel_size > 1
        ),
        "batch-sharded sampling leaves no worker the records of all": parallel.enable_batch_sharded_sampling,
    }
    return next((why for why, holds in found.items() if holds), None)
