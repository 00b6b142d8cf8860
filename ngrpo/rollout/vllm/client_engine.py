"""The engine behind ``vllm serve``: vLLM's asynchronous client, used by our threads as we use an engine of our own."""

import asyncio
import json
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from queue import Empty, SimpleQueue
from typing import Any

import torch

from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.rollout.vllm.request_loop import RequestLoop
from ngrpo.rollout.vllm.settings import MixingSettings, settings_of
from ngrpo.rollout.vllm.weight_senders import choose_sender
from ngrpo.rollout.vllm.weight_transfer import WeightTransfer

_LOOK_S = 0.005
"""Longest wait for outputs before others are let in."""


class ClientEngine:
    """What `RequestLoop` and `WeightTransfer` use of vLLM, asked of a client that lives in an event loop.

    Args:
        client: a ``vllm.engine.protocol.EngineClient``.
        loop: its event loop, which runs in another thread.
    """

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.model_config = client.model_config
        self._client = client
        self._loop = loop
        self._outputs: SimpleQueue[Any] = SimpleQueue()

    def add_request(self, request_id: str, prompt: Any, parameters: Any) -> None:
        """Begins a request."""
        asyncio.run_coroutine_threadsafe(self._run(request_id, prompt, parameters), self._loop)

    def abort_request(self, request_ids: Sequence[str]) -> None:
        """Takes requests back."""
        self._now(self._client.abort(list(request_ids)))

    def step(self) -> list[Any]:
        """Returns outputs that have come; waits a moment for them.

        Raises:
            Exception: what vLLM raised.
        """
        outputs: list[Any] = []
        try:
            outputs.append(self._outputs.get(timeout=_LOOK_S))
            while True:
                outputs.append(self._outputs.get_nowait())
        except Empty:
            pass
        for output in outputs:
            if isinstance(output, Exception):
                raise output
        return outputs

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        """Calls a method of every worker."""
        made: list[Any] = self._now(self._client.collective_rpc(method, args=args))
        return made

    def reset_prefix_cache(self) -> None:
        """Drops cached prompts."""
        self._now(self._client.reset_prefix_cache())

    def start_weight_update(self) -> None:
        """Begins a transfer of weights."""
        self._now(self._client.start_weight_update())

    def update_weights(self, request: dict[str, Any]) -> None:
        """Has the workers take some of them."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        self._now(self._client.update_weights(WeightTransferUpdateRequest(**request)))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Ends a transfer."""
        self._now(self._client.finish_weight_update(weight_version))

    def update_weight_version(self, new_version: str) -> None:
        """Names the weights."""
        self._now(self._client.update_weight_version(new_version))

    def get_weight_version(self) -> str:
        """Returns the name of the weights."""
        return str(self._now(self._client.get_weight_version()))

    async def _run(self, request_id: str, prompt: Any, parameters: Any) -> None:
        try:
            async for output in self._client.generate(prompt, parameters, request_id):
                self._outputs.put(output)
        except Exception as error:
            self._outputs.put(error)

    def _now(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


class ServedVllmEngine(VllmEngine):
    """The engine that ``vllm serve`` has started; it ends with that server.

    Args:
        client: see `ClientEngine`.
        loop: the same.
        model: that is served.
        exploration: the strategy that its workers were started for.
        max_prompt_tokens: longest prompt.
        max_new_tokens: longest response.

    Raises:
        SettingError: the server was started without this project's workers, or for another strategy.
    """

    def __init__(
        self,
        client: Any,
        loop: asyncio.AbstractEventLoop,
        model: ModelSource,
        exploration: Exploration,
        max_prompt_tokens: int,
        max_new_tokens: int,
    ) -> None:
        config = client.vllm_config
        found = settings_of(config)
        needed = MixingSettings(exploration.width, not exploration.sums_rows, 32 if found is None else found.burst)
        if found != needed or config.weight_transfer_config is None:
            raise SettingError(
                f"vllm serve was started without what {exploration} needs; give it {' '.join(serve_arguments(needed))}."
            )
        longest = config.model_config.max_model_len
        if max_prompt_tokens + max_new_tokens > longest:
            raise SettingError(
                f"data.max_prompt_tokens={max_prompt_tokens} and rollout.max_new_tokens={max_new_tokens} are more than "
                f"the {longest} tokens of vllm serve; lower them, or raise --max-model-len."
            )
        super().__init__(
            model,
            exploration,
            max_prompt_tokens,
            max_new_tokens,
            max_batch_size=config.scheduler_config.max_num_seqs,
            dtype=str(config.model_config.dtype).removeprefix("torch."),
            tensor_parallel_size=config.parallel_config.tensor_parallel_size,
            own_process=True,
            check=False,
            burst=found.burst,
        )
        self._engine = ClientEngine(client, loop)

    def start(self, device: torch.device) -> None:
        """Takes the running engine.

        Raises:
            RunError: mixtures cannot enter this model in vLLM.
        """
        self.llm = self._engine
        self._loop = RequestLoop(self._engine, nullcontext, pausing=False)
        self._transfer = WeightTransfer(self._engine, self._sender, self._loop.turn)
        if (refusal := self._call("ngrpo_attach")[0]) is not None:
            raise RunError(f"vllm serve cannot explore with model.path={self.model.path}: {refusal}.")

    def close(self) -> None:
        """Lets go of the engine, which is the server's."""
        if self.__dict__.pop("llm", None) is not None:
            self._loop.stop()


def serve_arguments(settings: MixingSettings) -> list[str]:
    """Returns the arguments of ``vllm serve`` for workers that mix."""
    scheduler = "ngrpo.rollout.vllm.burst_scheduler.BurstScheduler"
    return [
        "--worker-cls", "ngrpo.rollout.vllm.worker.MixingWorker",
        *(["--scheduler-cls", scheduler] if settings.burst > 1 else []),
        "--load-format", "ngrpo", "--model-loader-extra-config", '\'{"load_format": "auto"}\'',
        "--additional-config", f"'{json.dumps(settings.additional_config())}'",
        "--weight-transfer-config", f'\'{{"backend": "{choose_sender(1).backend}"}}\'',
        "--generation-config", "vllm",
    ]  # fmt: skip
