"""The agent loop of verl that asks servers for rollouts with exploration, one a call."""

import asyncio
import json
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.utils.profiler import simple_timer

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.random import request_key
from ngrpo.plugins.prompts import check_texts
from ngrpo.plugins.verl_records import fields
from ngrpo.plugins.verl_servers import NAME, ServerSettings, check_sampling, weights_number
from ngrpo.remote.explorer import RemoteExplorer, RemoteRollout

_AT_ONCE = 512
"""Rollouts that a process waits for at a time."""

_REPLAYING = ("fsdp", "fsdp2")
"""verl's actors that replay records, by ``strategy``; any other would leave them aside without a word."""

_trajectory: ContextVar[Mapping[str, Any]] = ContextVar("trajectory")
"""What verl says of the rollout that is being made: ``step``, ``validate`` and ``rollout_n``."""


@register(NAME)
class ExploringAgentLoop(AgentLoopBase):
    """Makes one response with exploration, and a plain one in a validation.

    The key of a rollout follows from ``rollout.seed``, the step, the prompt and the number of the sample, so that a
    repeated step makes the same rollouts of the same weights.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = ServerSettings.of(self.rollout_config)
        self.on_policy = not self.config.trainer.use_v1 or self.config.trainer.v1.trainer_mode == "sync"

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Returns prompt, response, log-probs and the record (see `verl_records.fields`).

        Args:
            sampling_params: verl's, of the training or of a validation.
            kwargs: the fields of the prompt's row.

        Raises:
            ServerUnavailable: no server makes it, or none with weights that are new enough.
            SettingError: a server refuses it, or the sampling cannot be used, or the prompt, or the actor.
        """
        _check_actors(self.config.actor_rollout_ref)
        check_sampling(_Attributes(sampling_params), "")
        check_texts([kwargs["raw_prompt"]])
        prompt_ids = await self.ct_build_initial_tokens(list(kwargs["raw_prompt"]))
        about = _trajectory.get()
        step, validating = max(int(about["step"]), 0), bool(about["validate"])
        behind = max(step - 1, 0)  # verl counts the step that is being made
        sample = kwargs.get("session_id", kwargs.get("priority", about["rollout_n"]))
        named = (step, validating, kwargs.get("index", 0), sample, zlib.crc32(json.dumps(prompt_ids).encode()))
        metrics: dict[str, float] = {}
        with simple_timer("generate_sequences", metrics):
            rollout = await self._made(
                prompts=prompt_ids,
                exploration="token" if validating else json.loads(self.settings.exploration),
                seed=request_key(int(self.rollout_config.seed), *(int(part) for part in named)),
                temperature=float(sampling_params["temperature"]),
                max_new_tokens=int(self.rollout_config.response_length),
                oldest_step=weights_number(behind) if self.on_policy else 0,
                progress=behind,
            )
        extra: dict[str, Any] = {"turn_scores": [], "tool_rewards": []}
        steps = behind if self.on_policy else max(rollout.weight_step - weights_number(0), 0)
        extra |= dict.fromkeys(("global_steps", "min_global_steps", "max_global_steps"), steps)
        if not validating:
            extra |= fields(rollout, _strategy(self.settings))
        length = rollout.length
        return AgentLoopOutput(
            prompt_ids=rollout.prompt_ids.tolist(),
            response_ids=rollout.response_ids.tolist(),
            response_mask=[1] * length,
            response_logprobs=rollout.log_probs.tolist(),
            num_turns=2,
            metrics=AgentLoopMetrics(**metrics),
            extra_fields=extra,
        )

    async def _made(self, **asked: Any) -> RemoteRollout:
        explorer, threads = _explorer(self.settings)
        made = await asyncio.get_running_loop().run_in_executor(threads, lambda: explorer.rollout(**asked))
        return made[0]


def tell_trajectories(worker: type) -> None:
    """Lets a worker of verl tell agent loops the step, and whether it validates; once is enough."""
    run = worker._run_agent_loop  # type: ignore[attr-defined]
    if hasattr(run, "__wrapped__"):
        return

    @wraps(run)
    async def telling(self: Any, sampling_params: Any, trajectory: Mapping[str, Any], **kwargs: Any) -> Any:
        told = _trajectory.set(trajectory)
        try:
            return await run(self, sampling_params, trajectory, **kwargs)
        finally:
            _trajectory.reset(told)

    worker._run_agent_loop = telling  # type: ignore[attr-defined]


def _check_actors(roles: Any) -> None:
    for role in ("actor", "ref"):
        strategy = roles[role].strategy
        if strategy not in _REPLAYING:
            raise SettingError(
                f"actor_rollout_ref.{role}.strategy={strategy} replays no records; set it to fsdp or fsdp2."
            )


class _Attributes:
    """Sampling parameters as attributes."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.temperature, self.top_p, self.top_k = (given[name] for name in ("temperature", "top_p", "top_k"))


@cache
def _explorer(settings: ServerSettings) -> tuple[RemoteExplorer, ThreadPoolExecutor]:
    return RemoteExplorer(settings.urls, timeout_s=settings.timeout_s), ThreadPoolExecutor(_AT_ONCE)


@cache
def _strategy(settings: ServerSettings) -> Exploration:
    return settings.strategy()
