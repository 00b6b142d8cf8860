"""The engine on other machines: rollouts come from servers (``ngrpo serve``), and weights go to them."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.modeling.overflow import cast_weights
from ngrpo.remote.connection import TOKEN_VARIABLE, MissingTensors, ServerConnection, token_from
from ngrpo.remote.messages import request_message, rollout_of, sampling_message
from ngrpo.remote.server_group import ServerGroup
from ngrpo.remote.tensor_parts import TensorPart, cut
from ngrpo.rollout.engine import NOT_STARTED, Report
from ngrpo.types.rollouts import Request, Rollout, Sampling

log = logging.getLogger(__name__)

_MIB = 1 << 20


class RemoteEngine:
    """Has rollouts made by one or several servers of the same model, which get the trainer's weights after each update.

    Each server makes an equal share. One that fails is done without: its share is made by the others, with the same
    keys and hence the same rollouts. Every rollout is of the weights that were sent last, or there is none.

    Args:
        model: what the servers serve.
        url: of a server, or of several.
        token_variable: environment variable with the servers' bearer token.
        timeout_s: longest wait for an answer, such as all rollouts of a share.
        retries: further tries of a request.
        part_mib: of the weights that are sent at a time.

    Raises:
        SettingError: a setting is out of range.
    """

    several_ranks = True
    concurrent = True
    checked_as = ""

    def __init__(
        self,
        model: ModelSource,
        url: str | list[str] = "http://127.0.0.1:8000",
        token_variable: str = TOKEN_VARIABLE,
        timeout_s: float = 3600.0,
        retries: int = 4,
        part_mib: float = 64.0,
    ) -> None:
        for name, value in (("timeout_s", timeout_s), ("part_mib", part_mib)):
            if not value > 0:
                raise SettingError(f"rollout.engine.{name}={value} sends nothing; choose a positive number.")
        token = token_from(token_variable)
        urls = [url] if isinstance(url, str) else list(url)
        self.model = model
        self._group = ServerGroup([ServerConnection(one, token, timeout_s) for one in urls], retries)
        self._part_bytes = int(part_mib * _MIB)
        self._about: Mapping[str, Any] | None = None
        self._table: Tensor | None = None
        self._strategies: Mapping[str, Mapping[str, Any]] = {}
        self._version = ""
        self._step = 0
        self._sent_at = time.time()
        self._transfer_s = 0.0
        self._transfer_mib = 0.0

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights as they are served."""
        return DTYPES[self._served()["dtype"]]

    @property
    def tf32(self) -> bool:
        """Whether the servers may multiply float32 numbers in TF32."""
        return bool(self._served()["tf32"])

    def start(self, device: torch.device) -> None:
        """Asks the servers what they serve.

        Raises:
            ServerUnavailable: none answers.
            SettingError: one serves another model than the others.
        """
        answers = self._group.everywhere(lambda server: server.get("/ngrpo/server"))
        first_url, first = next(iter(answers.items()))
        for url, other in answers.items():
            for name in ("dtype", "embedding", "embedding_shape"):
                if other[name] != first[name]:
                    raise SettingError(
                        f"rollout.engine.url={url} serves {name}={other[name]}, and {first_url} {first[name]}; start "
                        "all servers with the same model."
                    )
        self._about = first
        self._strategies = self._group.anywhere(lambda server: server.get("/ngrpo/strategies"))["strategies"]
        self._version, self._step = first["weights"]["version"], max(one["weights"]["step"] for one in answers.values())

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        exploration: BoundExploration,
        report: Report | None = None,
    ) -> list[Rollout]:
        """Makes one rollout a request, in their order (see `RolloutEngine`).

        Raises:
            ServerUnavailable: no server makes them with the weights that were sent.
            SettingError: the servers refuse them, or have no such strategy.
        """
        if not requests:
            return []
        self._require_started()
        asked = {
            "exploration": self._named(exploration.strategy),
            "sampling": sampling_message(sampling),
            "progress": int(exploration.progress),
            "weights": {"version": self._version},
        }
        sent = {"tables": exploration.tables, "parameters": exploration.parameters}
        parts = {name: TensorPart.of(tensors) for name, tensors in sent.items() if tensors}
        asked |= {name: part.name for name, part in parts.items()}
        try:
            messages = self._asked(asked, parts, requests)
        except MissingTensors:  # of a server that was started again, or had to make room
            messages = self._asked(asked, parts, requests)
        made = [rollout_of(message, one.prompt_ids) for message, one in zip(messages, requests, strict=True)]
        if report is not None:
            report(len(made), sum(rollout.generated for rollout in made))
        return made

    def check_load(self, strategy: Exploration, requests: int, max_new_tokens: int) -> None:
        """Refuses nothing: the servers do, by their own memory."""

    def sync_weights(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Sends new weights to all servers (see `RolloutEngine`); one that does not take them is done without."""
        self._require_started()
        start = time.perf_counter()
        self._table = None
        parts = cut(self._with_table(tensors), self._part_bytes)
        self._version, self._step, size = self._group.send_weights(parts, self._step + 1)
        self._sent_at, self._transfer_s = time.time(), time.perf_counter() - start
        self._transfer_mib = size / _MIB
        log.info(
            "weights %s of step %d were sent to the servers: %.1f MiB in %.2f s",
            self._version,
            self._step,
            self._transfer_mib,
            self._transfer_s,
        )

    def sync_loaded(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Sends them as any others: what the servers have loaded, or got from an earlier training, does not count."""
        self.sync_weights(tensors)

    def embedding(self) -> Tensor:
        """Returns the served input embedding table, [V, d], on the CPU."""
        self._require_started()
        if self._table is None:
            octets = self._group.anywhere(lambda server: server.octets("/ngrpo/embedding"))
            self._table = load(octets)["embedding"]
        return self._table

    def figures(self) -> dict[str, float]:
        """Returns the age and number of the weights, and what their transfer took (see `MeasuredEngine`)."""
        return {
            "rollout/weights_age_s": time.time() - self._sent_at,
            "rollout/weights_step": float(self._step),
            "rollout/transfer_mib": self._transfer_mib,
            "time/transfer_s": self._transfer_s,
        }

    def sleep(self) -> None:
        """Does nothing: the servers' memory is their own."""

    def wake(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Forgets what the servers told."""
        self._about = self._table = None

    def _with_table(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Passes weights on in the served dtype, and keeps the embedding table."""
        name, dtype = self._served()["embedding"], self.dtype
        for key, served in cast_weights(tensors, dtype):
            if key == name:
                self._table = served.cpu().clone()
            yield key, served

    def _asked(
        self, asked: Mapping[str, Any], parts: Mapping[str, TensorPart], requests: Sequence[Request]
    ) -> list[dict[str, Any]]:
        for part in parts.values():
            self._group.put(part)
        return self._group.generate(asked, [request_message(one) for one in requests])

    def _named(self, strategy: Exploration) -> dict[str, Any]:
        """Returns the name and the numbers by which the servers make a strategy.

        Raises:
            SettingError: they have none such.
        """
        kind = f"{type(strategy).__module__}.{type(strategy).__qualname__}"
        own = _settings(strategy)
        for name, known in self._strategies.items():
            settings = known["settings"]
            if known["class"] == kind and settings.keys() == own.keys():
                changed = {key: value for key, value in own.items() if value != settings[key]}
                if not any(isinstance(one, str) for key in changed for one in (changed[key], settings[key])):
                    return {"name": name, **changed}
        raise SettingError(
            f"exploration={strategy} is not known to the server, which takes names and numbers only; start it with the "
            "same exploration= and its settings."
        )

    def _served(self) -> Mapping[str, Any]:
        if self._about is None:
            self._about = self._group.anywhere(lambda server: server.get("/ngrpo/server"))
        return self._about

    def _require_started(self) -> None:
        if self._about is None:
            raise RuntimeError(NOT_STARTED)


def _settings(strategy: Exploration) -> dict[str, Any]:
    """Returns the settings of a strategy as JSON has them."""
    declared: Any = strategy
    told = fields(declared) if is_dataclass(declared) else ()
    values = {one.name: getattr(strategy, one.name) for one in told if one.init}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
