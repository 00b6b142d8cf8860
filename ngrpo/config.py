"""The typed configuration, and the one helper through which everything is instantiated."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_type_hints

from hydra.core.config_store import ConfigStore
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ngrpo import environment
from ngrpo.annotations import fits, name
from ngrpo.composition import composition_sentence
from ngrpo.errors import SettingError
from ngrpo.ranges import check_sizes
from ngrpo.targets import below, check_allowed

_HYDRA_KEYS = {"_target_", "_partial_", "_args_", "_recursive_", "_convert_"}


@dataclass
class RolloutConfig:
    """``rollout``: see `ngrpo.rollout.worker.RolloutSettings`; ``engine`` is a `_target_` node."""

    engine: Any = MISSING
    group_size: int = MISSING
    max_new_tokens: int = MISSING
    temperature: float = MISSING
    ahead: int = 0


@dataclass
class RewardTermConfig:
    """``reward_terms.<name>``: see `ngrpo.rewards.terms.WeightedTerm`.

    Attributes:
        term: builds a function of `ngrpo.rewards.terms.Responses`.
        weight: factor on its values.
    """

    term: Any = MISSING
    weight: float = 1.0


@dataclass
class TrainerConfig:
    """``trainer``: see `ngrpo.training.make_trainer` and `ngrpo.module.UpdateSettings`.

    Attributes:
        iterations: rollout batches to train on, those before a resume included.
        accelerator: cpu | gpu | auto (Lightning's).
        devices: processes on this machine, or "auto".
        num_nodes: machines.
        tensor_parallel_size: processes that hold one model between them; see `ngrpo.distributed.Ranks`.
        precision: 32-true | bf16-mixed.
        threads: CPU threads of PyTorch in each process; null leaves it to PyTorch.
        matmul_precision: highest | high | medium, of float32 matrix products; see `ngrpo.torch_settings`.
        microbatch_tokens: most tokens (prompts included) in one forward pass.
        head_rows: most tokens whose logits over the vocabulary are held at a time.
        max_grad_norm: gradient norms above are scaled down to it.
        max_bad_steps: optimiser steps in a row without a finite loss and gradient after which the run stops.
        max_time: span after which this process finishes its iteration, saves and stops: "45m", "11h30m"; null for none.
        offload_reference: keep the reference in host memory outside its passes.
        offload_optimizer: keep the optimiser's moments in host memory while rollouts are made.
        gather_once: with several devices, gather weights and sum gradients once an optimiser step.
        optimizer: a partial `_target_` node, called with the parameters.
        schedule: a partial `_target_` node, called with the optimiser steps made and those of the whole run; see
            `ngrpo.schedule`.
    """

    iterations: int = MISSING
    accelerator: str = MISSING
    devices: Any = MISSING
    num_nodes: int = MISSING
    tensor_parallel_size: int = 1
    precision: str = MISSING
    threads: int | None = None
    matmul_precision: str = "highest"
    microbatch_tokens: int = MISSING
    head_rows: int = MISSING
    max_grad_norm: float = MISSING
    offload_reference: bool = False
    offload_optimizer: bool = False
    gather_once: bool = False
    max_bad_steps: int = MISSING
    max_time: str | None = None
    optimizer: Any = MISSING
    schedule: Any = MISSING


@dataclass
class Config:
    """The root. ``Any`` fields are `_target_` nodes, checked against the signature of what they name.

    Attributes:
        model: builds a `ngrpo.modeling.loading.ModelSource`.
        data: builds a `ngrpo.data.datamodule.PromptDataModule`.
        benchmark: builds `ngrpo.evaluation.benchmark.Benchmark` by name; evaluated in place of the data's own problems.
        reward: builds a `ngrpo.rollout.worker.Reward`.
        reward_terms: what is added to it in training, by name.
        selection: builds a `ngrpo.rollout.selection.DynamicSampling`.
        algo: builds a `ngrpo.algo.policy_loss.Algorithm`.
        critic: builds a `ngrpo.critic_update.CriticSettings`; null trains none.
        exploration: builds a `ngrpo.exploration.base.Exploration`.
        rollout: rollouts and their engine.
        trainer: hardware, optimiser, number of iterations.
        logger: builds a Lightning logger.
        callbacks: Lightning callbacks by name; null leaves one out.
        seed: of everything random.
        ckpt: null, "latest", or a run's or checkpoint's folder to go on from.
        allow_targets: modules beside `ngrpo.targets.ALLOWED` that `_target_` may name; those named on the command line
            are added.
        custom_reward_timeout_s: seconds that a call of a reward, or of a reward term, from outside the package may
            take; it runs in a process of its own. Null runs it in the trainer's, without a limit.
    """

    model: Any = MISSING
    data: Any = MISSING
    benchmark: dict[str, Any] = field(default_factory=dict)
    reward: Any = MISSING
    reward_terms: dict[str, RewardTermConfig] = field(default_factory=dict)
    selection: Any = MISSING
    algo: Any = MISSING
    critic: Any = None
    exploration: Any = MISSING
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    logger: Any = MISSING
    callbacks: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    ckpt: str | None = None
    allow_targets: list[str] = field(default_factory=list)
    custom_reward_timeout_s: float | None = None


@dataclass
class PromptConfig:
    """``data`` of an evaluation: how its prompts are made.

    Attributes:
        max_prompt_tokens: longer prompts are left out.
        system_prompt: system message; null for none.
        template_args: variables of the chat template; see `ngrpo.data.chat_template.ChatFormat`.
        template_date: the day, as 2026-01-31, for templates that ask for the date; null for that of the first call.
        plain_prompts: the bare question is a prompt where the tokenizer has no chat template.
    """

    max_prompt_tokens: int = MISSING
    system_prompt: str | None = None
    template_args: dict[str, Any] = field(default_factory=dict)
    template_date: str | None = None
    plain_prompts: bool = False


@dataclass
class EvaluateConfig:
    """The root of ``conf/evaluate.yaml``.

    Attributes:
        model: builds a `ngrpo.modeling.loading.ModelSource`.
        benchmark: builds `ngrpo.evaluation.benchmark.Benchmark` by name.
        data: how prompts are made.
        reward: builds a `ngrpo.rollout.worker.Reward`.
        rollout: the engine and ``max_new_tokens``; the rest is for training.
        evaluator: builds a `ngrpo.evaluation.evaluator.Evaluator`.
        n: samples a problem.
        k: of Pass@k and maj@k; null for the powers of two up to n.
        problems_at_once: problems sampled together, and stored together.
        accelerator: cpu | gpu | auto.
        threads: CPU threads of PyTorch; null leaves it to PyTorch.
        matmul_precision: highest | high | medium; see `ngrpo.torch_settings`.
        seed: of the samples.
        out: folder of answers and figures.
        custom_reward_timeout_s: seconds that a call of a reward from outside the package may take, in a process of its
            own; longer ends the evaluation. Null runs it in this one, without a limit.
        allow_targets: see `Config`.
    """

    model: Any = MISSING
    benchmark: dict[str, Any] = field(default_factory=dict)
    data: PromptConfig = field(default_factory=PromptConfig)
    reward: Any = MISSING
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    evaluator: Any = MISSING
    n: int = MISSING
    k: list[int] | None = None
    problems_at_once: int = MISSING
    accelerator: str = "auto"
    threads: int | None = None
    matmul_precision: str = "highest"
    seed: int = 0
    out: str = MISSING
    allow_targets: list[str] = field(default_factory=list)
    custom_reward_timeout_s: float | None = None


def register() -> None:
    """Makes the schemas known to Hydra, and the resolvers: a default by the model, and the environment's."""
    environment.register()
    store = ConfigStore.instance()
    store.store(group="schema", name="train", node=Config, package="_global_")
    store.store(group="schema", name="evaluate", node=EvaluateConfig, package="_global_")
    OmegaConf.register_new_resolver("for_demo", lambda path, yes, no: yes if path == "demo" else no, replace=True)


def checked(config: DictConfig, schema: type = Config) -> DictConfig:
    """Returns the resolved configuration, refusing every key that nothing reads.

    Hydra lets ``+group.key=1`` through; merging into the schema again catches it, and the keys of `_target_`
    nodes are compared with the signature of their target.

    Raises:
        SettingError: a key is unknown, a value is missing, or a target is not allowed.
    """
    try:
        environment.note(config)
        resolved = OmegaConf.to_container(config, resolve=True)
        _check_no_interpolation(resolved, "")
        merged = OmegaConf.merge(OmegaConf.structured(schema), resolved)
        OmegaConf.to_container(merged, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise SettingError(composition_sentence(error)) from error
    assert isinstance(merged, DictConfig)
    _check_nodes(merged)
    check_allowed(merged, merged.allow_targets)
    _check_targets(merged, "")
    _check_homes(merged)
    check_sizes(merged)
    return merged


def _check_no_interpolation(node: Any, path: str) -> None:
    """A text that still is one would be resolved again after everything has been checked."""
    if isinstance(node, dict | list):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            _check_no_interpolation(child, f"{path}.{key}".lstrip("."))
    elif isinstance(node, str) and "${" in node:
        raise SettingError(f"{path}={node} is an interpolation that leads to another one; write what it should be.")


_NODES = {
    "train": (
        "model", "data", "reward", "algo", "selection", "exploration", "logger", "rollout.engine", "trainer.optimizer",
        "trainer.schedule",
    ),
    "evaluate": ("model", "reward", "evaluator", "rollout.engine"),
}  # fmt: skip
"""Settings that name what they build, by script."""


def _check_nodes(config: DictConfig) -> None:
    """What builds something must say what: every group, and everything that is listed by name."""
    places = list(_NODES["evaluate" if "evaluator" in config else "train"])
    places += ["critic"] if config.get("critic") is not None else []
    places += [f"callbacks.{key}" for key, node in config.get("callbacks", {}).items() if node is not None]
    places += [f"reward_terms.{key}.term" for key in config.get("reward_terms", {})]
    for place in places:
        node = OmegaConf.select(config, place)
        if not _is_target(node):
            raise SettingError(f"{place}={node} builds nothing; choose a file of conf/{place.partition('.')[0]}.")


_HOMES = {
    "algo": ("ngrpo.algo.policy_loss",),
    "algo.advantage": ("ngrpo.algo.advantage",),
    "algo.ratio": ("ngrpo.algo.ratio",),
    "algo.clip": ("ngrpo.algo.clip",),
    "algo.aggregate": ("ngrpo.algo.aggregate",),
    "algo.kl": ("ngrpo.algo.kl",),
    "algo.credit": ("ngrpo.algo.credit", "ngrpo.algo.consistency"),
    "algo.correction": ("ngrpo.algo.correction",),
    "exploration": ("ngrpo.exploration",),
    "evaluator.exploration": ("ngrpo.exploration",),
    "trainer.schedule": ("ngrpo.schedule",),
}
"""Where the parts are that fit a setting: two functions of the same types may mean different things."""


def _check_homes(config: DictConfig) -> None:
    """A part of this program must be one of its setting's; a user's own is the user's affair."""
    for place, homes in _HOMES.items():
        target = OmegaConf.select(config, f"{place}._target_")
        if isinstance(target, str) and below(target, ("ngrpo",)) and not below(target, homes):
            raise SettingError(
                f"{place}._target_={target} is made for another setting; choose a part of {' or '.join(homes)}."
            )


def _is_target(node: Any) -> bool:
    return isinstance(node, DictConfig) and isinstance(node.get("_target_"), str)


_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def build(node: DictConfig, **available: Any) -> Any:
    """Instantiates a `_target_` node; the only caller of Hydra's ``instantiate``.

    Args:
        node: the node.
        available: objects of the run (tokenizer, worker, ...); those that the target's signature names and
            the node leaves open are passed to it.

    Raises:
        SettingError: of the target's own making, or because it cannot be imported or lacks a setting.
    """
    parameters = _parameters(node, _target(node))
    named = {name for name, parameter in parameters.items() if parameter.kind not in _COLLECTING}
    passed = {name: value for name, value in available.items() if name in named and name not in node}
    if not node.get("_partial_"):
        _check_complete(node, [p for p in parameters.values() if p.name not in passed])
    # Passed to the partial, not to Hydra, which would turn dataclass objects into dictionaries.
    try:
        made = instantiate(node, _partial_=True, _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, SettingError):
            raise error.__cause__ from None
        raise
    return partial(made, **passed) if node.get("_partial_") else made(**passed)


def _check_complete(node: DictConfig, parameters: list[inspect.Parameter]) -> None:
    open_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in open_kinds]
    missing = [name for name in required if name not in node]
    if missing:
        raise SettingError(
            f"_target_={node['_target_']} also needs {', '.join(missing)}; choose a preset that sets them, or add them."
        )


def _target(node: DictConfig) -> Callable[..., Any]:
    try:
        return get_object(node["_target_"])
    except Exception as error:
        reason = " ".join(str(error).split())
        raise SettingError(
            f"_target_={node['_target_']} cannot be imported ({reason}); give the dotted path of a class or function."
        ) from error


def _parameters(node: DictConfig, target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(target).parameters
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"_target_={node['_target_']} has no parameters that Python knows; give the dotted path of a class or "
            "function that is written in Python."
        ) from error


def _check_targets(node: Any, path: str) -> None:
    if isinstance(node, ListConfig):
        for index, child in enumerate(node):
            _check_targets(child, f"{path}.{index}")
    if not isinstance(node, DictConfig):
        return
    if "_target_" in node:
        _check_signature(node, path)
    for key, child in node.items():
        _check_targets(child, f"{path}.{key!s}".lstrip("."))


def _check_signature(node: DictConfig, path: str) -> None:
    target = _target(node)
    parameters = _parameters(node, target)
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for key in map(str, node.keys() - _HYDRA_KEYS):
        if key not in parameters and not free:
            known = ", ".join(parameters)
            raise SettingError(f"{path}.{key}={node[key]} is not a setting of {node['_target_']}; it has {known}.")
        if not fits(node[key], hints.get(key, Any)):
            raise SettingError(
                f"{path}.{key}={node[key]} is of type {type(node[key]).__name__}, and {node['_target_']} "
                f"takes {name(hints[key])}; change the value."
            )
