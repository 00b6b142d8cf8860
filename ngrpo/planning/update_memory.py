"""The memory of the passes of an update on one device: copies of weights, gradients, logits and activations."""

from dataclasses import dataclass, replace

from ngrpo.modeling.critic import ValueModel
from ngrpo.planning.meta_model import meta_model, rank_config
from ngrpo.planning.parameters import ModelSize, gradient_bytes
from ngrpo.planning.pass_memory import PassSettings, scoring_pass, training_pass
from ngrpo.planning.run_settings import RunSettings
from ngrpo.planning.sharded_memory import gathered_weights, unsharded_gradients


@dataclass(frozen=True)
class UpdateMemory:
    """Bytes beyond parameters, moments and reference.

    Attributes:
        gradients: of the parameters that a device holds.
        computed: weights in the dtype of the computation: copies on one device, gathered ones on several.
        logits: a chunk of logits with its gradient, and the gradient of the head's weight; 0 where the most memory is
            taken later, in the layers' backward pass.
        activations: all else at the moment of the most memory, less what of the gradients is not there yet.
        scoring: most that a pass without gradients takes beside ``computed``.
    """

    gradients: int
    computed: int
    logits: int
    activations: int
    scoring: int


def update_memory(run: RunSettings) -> UpdateMemory:
    """Plans the passes of the policy's update on the meta device."""
    settings = _pass_settings(run)
    size = ModelSize.of(meta_model(settings.config, settings.dtype, run.lora, run.trust_remote_code))
    traced = training_pass(settings)
    copies = copied_weights(size, run)
    logits = head_bytes(run) if traced.head >= traced.body else 0
    beyond = traced.peak - gradient_bytes(size.all, 1) - copies - logits
    return UpdateMemory(
        gradients=gradient_bytes(stored_size(run).all, run.data_ranks),
        computed=_computed(size, run),
        logits=logits,
        activations=beyond + _unsharded(size, run),
        scoring=scoring_pass(settings) - copies,
    )


def critic_update_memory(run: RunSettings, critic: ModelSize) -> UpdateMemory:
    """Plans the passes of the critic's update: the policy's layers without a head.

    Args:
        run: the settings.
        critic: from `critic_size`.
    """
    settings = replace(_pass_settings(run), lora=None, scored=1)
    policy = ModelSize.of(meta_model(settings.config, settings.dtype, None, run.trust_remote_code))
    beyond = training_pass(settings).body - gradient_bytes(policy.all, 1) - copied_weights(policy, run)
    return UpdateMemory(
        gradients=gradient_bytes(critic.all, run.data_ranks),
        computed=_computed(critic, run),
        logits=0,
        activations=beyond + _unsharded(critic, run),
        scoring=0,
    )


def _pass_settings(run: RunSettings) -> PassSettings:
    """A sharded model computes with gathered weights, which are in the dtype of the computation."""
    sharded = run.devices > 1
    return PassSettings(
        config=rank_config(run.config, run.tensor_parallel_size),
        dtype=run.computed_in if sharded else run.dtype,
        mixed_in=None if sharded else run.mixed_in,
        checkpointing=run.checkpointing,
        compile=run.compile,
        lora=run.lora,
        tokens=run.pass_tokens,
        scored=run.pass_tokens,
        head_rows=run.head_rows,
        accumulating=run.accumulates or sharded,
        trust_remote_code=run.trust_remote_code,
    )


def _computed(size: ModelSize, run: RunSettings) -> int:
    itemsize = run.computed_in.itemsize
    return gathered_weights(size, itemsize, run.gather_once) if run.devices > 1 else copied_weights(size, run)


def _unsharded(size: ModelSize, run: RunSettings) -> int:
    if run.devices == 1:
        return 0
    return unsharded_gradients(size, run.computed_in.itemsize, run.data_ranks, run.gather_once)


def critic_size(run: RunSettings) -> ModelSize:
    """Returns the parameters of a tensor-parallel rank's critic."""
    config = rank_config(run.config, run.tensor_parallel_size)
    return ModelSize.of(meta_model(config, run.dtype, None, run.trust_remote_code, ValueModel))


def stored_size(run: RunSettings) -> ModelSize:
    """Returns the parameters of a tensor-parallel rank in the dtype that they are kept in."""
    config = rank_config(run.config, run.tensor_parallel_size)
    return ModelSize.of(meta_model(config, run.dtype, run.lora, run.trust_remote_code))


def copied_weights(size: ModelSize, run: RunSettings) -> int:
    """Returns the bytes of the copies that `ngrpo.modeling.precision.computing_in` makes."""
    itemsize = run.computed_in.itemsize
    return sum(one.numbers * itemsize for one in size.all if one.itemsize != itemsize)


def head_bytes(run: RunSettings) -> int:
    """Returns the bytes of a chunk of logits, of its gradient, and of the head's float32 gradient."""
    vocabulary, rows = run.config.vocab_size, min(run.head_rows, run.pass_tokens)
    gradient = 0 if run.lora is not None else vocabulary * run.config.hidden_size * 4
    return 2 * rows * vocabulary * run.computed_in.itemsize + gradient
