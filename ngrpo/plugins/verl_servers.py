"""The servers that make verl's rollouts: the settings that name them, and the weights that verl sends them."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutMode, RolloutReplica

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import DTYPES
from ngrpo.modeling.overflow import cast_weights
from ngrpo.plugins.strategies import check_replayed_by_records, check_scored_by_token
from ngrpo.remote.connection import TOKEN_VARIABLE, ServerConnection, ServerUnavailable, token_from
from ngrpo.remote.server_group import ServerGroup
from ngrpo.remote.tensor_parts import cut
from ngrpo.rollout.recovery import taken_whole

NAME = "ngrpo"
"""The name of the rollout engine and of the agent loop in verl's settings."""

_ROLLOUT = "actor_rollout_ref.rollout"
_PART_BYTES = 64 << 20
_OWN_STRATEGIES = "ngrpo.exploration."
_HEAD = "lm_head.weight"


@dataclass(frozen=True)
class ServerSettings:
    """What ``actor_rollout_ref.rollout.engine_kwargs.ngrpo`` says.

    Attributes:
        urls: of servers of one model (``ngrpo serve``).
        exploration: a strategy's name and its numbers, as JSON.
        timeout_s: longest wait for an answer, that for a rollout included.
    """

    urls: tuple[str, ...]
    exploration: str
    timeout_s: float = 3600.0

    @classmethod
    def of(cls, rollout: Any) -> "ServerSettings":
        """Reads the settings of verl's rollout, and refuses those that a server does not sample by.

        Raises:
            SettingError: some are missing, or cannot be used.
        """
        given = _plain(rollout.engine_kwargs.get(NAME))
        url, strategy = given.pop("url", None), given.pop("exploration", None)
        timeout_s = float(given.pop("timeout_s", cls.timeout_s))
        if not url or not strategy:
            raise SettingError(
                f"{_ROLLOUT}.engine_kwargs.{NAME} names no url and exploration; set +{_ROLLOUT}.engine_kwargs.{NAME}."
                f"url=http://127.0.0.1:8000 and +{_ROLLOUT}.engine_kwargs.{NAME}.exploration.name=neighbor."
            )
        if given:
            raise SettingError(f"{_ROLLOUT}.engine_kwargs.{NAME}.{next(iter(given))} is no setting; remove it.")
        if rollout.ignore_eos:
            raise SettingError(f"{_ROLLOUT}.ignore_eos=true is not known to the servers; set it to false.")
        for at in ("", "val_kwargs."):
            check_sampling(rollout.val_kwargs if at else rollout, f"{_ROLLOUT}.{at}")
        return cls(
            (url,) if isinstance(url, str) else tuple(url),
            json.dumps({"name": strategy} if isinstance(strategy, str) else strategy),
            timeout_s,
        )

    def group(self) -> ServerGroup:
        """Returns the servers."""
        token = token_from(TOKEN_VARIABLE)
        return ServerGroup([ServerConnection(url, token, self.timeout_s) for url in self.urls])

    def strategy(self) -> Exploration:
        """Makes the strategy that the servers have under the name.

        Raises:
            ServerUnavailable: none answers.
            SettingError: there is none, it is no strategy of this project, or none that verl can train with.
        """
        described = self.group().anywhere(lambda server: server.get("/ngrpo/strategies"))["strategies"]
        changed = json.loads(self.exploration)
        name = changed.pop("name", None)
        if name not in described:
            raise SettingError(
                f"exploration.name={name} is no strategy of the servers; choose one of {', '.join(sorted(described))}."
            )
        module, _, kind = str(described[name]["class"]).rpartition(".")
        if not module.startswith(_OWN_STRATEGIES):
            raise SettingError(
                f"exploration.name={name} is a strategy of your own, and verl is known to train this project's; choose "
                "one of them."
            )
        unknown = changed.keys() - described[name]["settings"].keys()
        if unknown:
            raise SettingError(f"exploration.{min(unknown)} is no setting of {name}; remove it.")
        made: Exploration = getattr(import_module(module), kind)(**described[name]["settings"] | changed)
        check_scored_by_token(made, "verl")
        check_replayed_by_records(made, "verl")
        return made


def _plain(node: Any) -> dict[str, Any]:
    """Returns settings of OmegaConf, or a dictionary, as a dictionary."""
    if OmegaConf.is_config(node):
        node = OmegaConf.to_container(node, resolve=True)
    return dict(node or {})


def check_sampling(settings: Any, before: str) -> None:
    """Refuses what changes the softmax that verl scores in full, and greedy decoding.

    Args:
        settings: with ``temperature``, ``top_p`` and ``top_k``.
        before: what stands before these names in verl's settings.

    Raises:
        SettingError: one changes it.
    """
    if settings.top_p != 1 or settings.top_k not in (-1, 0):
        name = "top_p" if settings.top_p != 1 else "top_k"
        raise SettingError(f"{before}{name}={getattr(settings, name)} truncates the softmax; leave it out.")
    if not settings.temperature > 0:
        raise SettingError(
            f"{before}temperature={settings.temperature} is greedy, and the servers sample; set it to 1.0, or another "
            "positive number."
        )


def weights_number(steps: int) -> int:
    """Returns the least number that the servers give to weights after so many of verl's steps.

    Theirs begin with 0, for the weights that a server has loaded itself.
    """
    return steps + 1


class ServedWeights(BaseRollout):
    """The trainer's side of the servers: sends them the actor's weights after each update.

    The servers' memory is their own, so that there is nothing to release or to resume.
    """

    def __init__(self, config: Any, model_config: Any, device_mesh: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, model_config, device_mesh, *args, **kwargs)
        self._servers = ServerSettings.of(self.config).group()
        self._steps = 0

    async def resume(self, tags: list[str]) -> None:
        """Does nothing."""

    async def release(self) -> None:
        """Does nothing."""

    async def update_weights(
        self, weights: Iterable[tuple[str, Tensor]], wire_format: str = "named_tensors", **options: Any
    ) -> None:
        """Sends weights from the first process; the others take part in gathering them.

        Args:
            weights: by transformers name, whole.
            wire_format: of them.
            options: verl's ``global_steps``, which numbers the weights, and ``peft_config`` of adapters that are sent
                alone.

        Raises:
            ServerUnavailable: a server has not taken them; going on with its old ones would be another policy.
            SettingError: they are not the weights of the served model.
            RunError: the served dtype cannot hold them.
        """
        with taken_whole(weights) as rest:
            if wire_format != "named_tensors" or hasattr(weights, "__aiter__"):
                raise SettingError("trainer.v1.trainer_mode sends weights by another process; set it to sync.")
            if options.get("peft_config") is not None:
                raise SettingError("actor_rollout_ref.model.lora.merge=False sends adapters alone; set it to True.")
            if torch.distributed.is_initialized() and torch.distributed.get_rank():
                for _ in rest:
                    pass
                return
            steps = options.get("global_steps")
            self._steps = self._steps if steps is None else int(steps)
            sent = self._servers.send_weights(cut(self._served(rest), _PART_BYTES), weights_number(self._steps))
        served = self._servers.everywhere(lambda server: server.get("/ngrpo/weights"))
        for server in self._servers.servers:
            if server.url not in served or served[server.url]["version"] != sent.version:
                raise ServerUnavailable(f"{server.url} has not taken the weights of step {self._steps}; start it again")

    def _served(self, weights: Iterable[tuple[str, Tensor]]) -> Iterable[tuple[str, Tensor]]:
        about = self._servers.anywhere(lambda server: server.get("/ngrpo/server"))
        tied = bool(getattr(self.model_config.hf_config, "tie_word_embeddings", False))
        own = ((name, tensor) for name, tensor in weights if not (tied and name == _HEAD))
        return cast_weights(own, DTYPES[about["dtype"]])


class ServedReplica(RolloutReplica):
    """The driver's side of the servers: finds out whether they serve what verl will ask for; starts nothing."""

    async def launch_servers(self) -> None:
        """Asks the servers what they serve.

        Raises:
            ServerUnavailable: none answers.
            SettingError: they do not serve what verl will ask for.
        """
        if self.rollout_mode is not RolloutMode.HYBRID:
            raise SettingError(f"{_ROLLOUT}.name={NAME} is no model of rewards and of teachers; use vllm for these.")
        settings = ServerSettings.of(self.config)
        settings.strategy()
        for url, about in settings.group().everywhere(lambda server: server.get("/ngrpo/server")).items():
            for own, theirs in (("prompt_length", "max_prompt_tokens"), ("response_length", "max_new_tokens")):
                if getattr(self.config, own) > about[theirs]:
                    raise SettingError(
                        f"{_ROLLOUT}.{own}={getattr(self.config, own)} is more than the {about[theirs]} tokens that "
                        f"{url} serves; start it with a longer one."
                    )
        self._server_address = f"{NAME}-{self.replica_rank}"  # of no use: the agent loop asks the servers itself

    async def init_standalone(self) -> None:
        """Refuses GPUs of its own, which the servers do not need.

        Raises:
            SettingError: always.
        """
        raise SettingError("trainer.v1.trainer_mode=separate_async takes GPUs for rollouts; set it to sync.")
