"""Rollouts from servers: prompts in, tokens, log-probs and records out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ngrpo.errors import SettingError
from ngrpo.exploration.random import request_key
from ngrpo.remote.connection import TOKEN_VARIABLE, ServerConnection, token_from
from ngrpo.remote.messages import reading, rollout_of
from ngrpo.remote.server_group import ServerGroup
from ngrpo.types.rollouts import Rollout
from ngrpo.utils.given_values import shown

Asked = str | Sequence[int] | Sequence[Mapping[str, str]]
"""A question, which goes through the chat template; token ids; or messages with ``role`` and ``content``."""


@dataclass(frozen=True, kw_only=True)
class RemoteRollout(Rollout):
    """A rollout that a server has made.

    Attributes:
        text: the response, without the token that ended it.
        weight_version: 16 hexadecimal digits that name the weights that made it.
        weight_step: number of these weights, which grows with each transfer; 0 for those of the model's folder.
    """

    text: str
    weight_version: str
    weight_step: int


class RemoteExplorer:
    """Asks rollout servers (``ngrpo serve``) for rollouts, from any number of threads.

    A request that fails is asked again, at the next server if there are several, with the same keys and hence for the
    same rollouts, where that has the same weights: each rollout names its own.

    Args:
        url: of a server, or of several that serve the same model.
        token: bearer token; None for that of the environment variable ``NGRPO_SERVER_TOKEN``.
        timeout_s: longest wait for an answer.
        retries: further tries of a request.

    Raises:
        SettingError: the URL is none.
    """

    def __init__(
        self, url: str | Sequence[str], token: str | None = None, timeout_s: float = 600.0, retries: int = 4
    ) -> None:
        urls = [url] if isinstance(url, str) else list(url)
        token = token or token_from(TOKEN_VARIABLE)
        self._group = ServerGroup([ServerConnection(one, token, timeout_s) for one in urls], retries)

    def rollout(
        self,
        prompts: Asked | Sequence[Asked],
        n: int = 1,
        exploration: str | Mapping[str, Any] | None = None,
        seed: int = 0,
        temperature: float | None = None,
        max_new_tokens: int | None = None,
        stop_ids: Sequence[int] | None = None,
        oldest_step: int = 0,
        progress: int = 0,
    ) -> list[RemoteRollout]:
        """Makes rollouts of prompts, those of ``ngrpo.sample`` with the same seed, model and settings.

        Args:
            prompts: one, or several; texts, token ids or conversations.
            n: rollouts of each.
            exploration: a strategy by name, or its name and numbers (``{"name": "neighbor", "rate": 0.2}``); None for
                the server's own.
            seed: decides all that is drawn.
            temperature: None for the server's.
            max_new_tokens: most response tokens; None for the server's.
            stop_ids: token ids that end a response; None for the model's.
            oldest_step: least number of the weights; older ones are an error.
            progress: training iterations behind the weights, for strategies that change with them.

        Returns:
            The rollouts, n to a prompt and prompt after prompt.

        Raises:
            OtherWeights: every server has older weights.
            ServerUnavailable: no server answers.
            SettingError: a server refuses what was asked.
        """
        several = _several(prompts)
        if type(n) is not int or n < 1:
            raise SettingError(f"n={shown(n)} makes no rollouts; choose 1 or more.")
        if type(seed) is not int:  # its digits make the keys: 1.0 is not 1
            raise SettingError(f"seed={shown(seed)} is no whole number; choose one.")
        named = {"name": exploration} if isinstance(exploration, str) else exploration
        sampling = {"temperature": temperature, "max_new_tokens": max_new_tokens, "stop_ids": stop_ids}
        asked: dict[str, Any] = {
            "sampling": {name: value for name, value in sampling.items() if value is not None},
            "weights": {"oldest_step": oldest_step},
            "progress": progress,
            "text": True,
        }
        if named is not None:
            asked["exploration"] = dict(named)
        requests = [
            {**prompt, "key": request_key(seed, number, sample)}
            for number, prompt in enumerate(several)
            for sample in range(n)
        ]
        return [_rollout(message) for message in self._group.generate(asked, requests)]

    def strategies(self) -> dict[str, Any]:
        """Returns the settings of the strategies that can be asked for, by name."""
        return {name: one["settings"] for name, one in self._group.anywhere(_strategies)["strategies"].items()}

    def weights(self) -> dict[str, Any]:
        """Returns ``version``, ``step`` and ``age_s`` of the weights of each server, by its address."""
        return self._group.everywhere(lambda server: server.get("/ngrpo/weights"))


def _strategies(server: ServerConnection) -> Any:
    return server.get("/ngrpo/strategies")


def _several(prompts: Any) -> list[dict[str, Any]]:
    """Returns each prompt as a part of its requests."""
    if isinstance(prompts, str) or _is_list(prompts, int) or _is_list(prompts, Mapping):
        prompts = [prompts]
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes):
        raise _no_prompts(prompts)
    return [_prompt(one) for one in prompts]


def _prompt(given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        return {"messages": [{"role": "user", "content": given}]}
    if _is_list(given, Mapping):
        return {"messages": [dict(one) for one in given]}
    if _is_list(given, int):
        return {"prompt_ids": list(given)}
    raise _no_prompts(given)


def _is_list(given: Any, kind: type) -> bool:
    """Says whether something is a list of one or more of a kind."""
    if not isinstance(given, Sequence) or isinstance(given, str | bytes) or not given:
        return False
    return all(isinstance(one, kind) for one in given)


def _no_prompts(given: Any) -> SettingError:
    return SettingError(
        f"prompts={shown(given)} are neither text, token ids nor messages; give one of them, or a list of such."
    )


def _rollout(message: Mapping[str, Any]) -> RemoteRollout:
    with reading():
        made = rollout_of(message, tuple(message["prompt_ids"]))
        weights = message["weights"]
        return RemoteRollout(
            **{field.name: getattr(made, field.name) for field in fields(Rollout)},
            text=message["text"],
            weight_version=weights["version"],
            weight_step=weights["step"],
        )
