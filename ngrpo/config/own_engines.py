"""A user's own engine in place of the default's: ``rollout.engine._target_=my.Engine``."""

import inspect

from omegaconf import DictConfig, OmegaConf

from ngrpo.config.engine_dtype import engine_dtype
from ngrpo.config.instantiate import parameters_of, target_of

_AUTO = "ngrpo.rollout.auto.auto_engine"
_OF_AUTO = {"max_prompt_tokens", "max_new_tokens", "max_batch_size", "compile", "dense_record_gib"}
_OF_TORCH = {"max_batch_size": 128, "compile": False}
_LATER = ("burst",)
"""Settings of conf/rollout/*.yaml that engines were written without; null is the engine's own value."""


def settle_own_engine(config: DictConfig) -> None:
    """Gives an engine that replaces ``auto_engine`` in its node the settings of conf/rollout/torch.yaml, in place.

    Those were the default's before ``rollout=auto`` was; of the others it gets those that it names.

    Args:
        config: of a script with engines; its targets are allowed.
    """
    node = config.rollout.engine
    if not isinstance(node, DictConfig) or "_target_" not in node or node["_target_"] == _AUTO:
        return
    if node.get("dtype") == engine_dtype(OmegaConf.select(config, "trainer.precision")):
        _drop_unnamed(node, {"dtype"})  # the default's, of rollout=torch too: nobody has asked for it
    _drop_unnamed(node, {name for name in _LATER if name in node and node[name] is None})
    if not node.keys() >= _OF_AUTO:
        return
    _drop_unnamed(node, _OF_AUTO - _OF_TORCH.keys())
    for name, value in _OF_TORCH.items():
        if node[name] is None:
            node[name] = value


def _drop_unnamed(node: DictConfig, settings: set[str]) -> None:
    named = parameters_of(node, target_of(node))
    for name in settings:
        if name not in named or named[name].kind is inspect.Parameter.VAR_KEYWORD:
            del node[name]
