"""The endpoint plugin of vLLM: ``vllm serve`` with this project's interface below ``/ngrpo``, beside vLLM's own.

    VLLM_PLUGINS=ngrpo NGRPO_SERVE="exploration=neighbor" vllm serve MODEL ...

``NGRPO_SERVE`` has words of ``conf/serve.yaml``, as ``ngrpo serve`` takes them.
"""

import asyncio
import os
import shlex
from contextlib import ExitStack
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from ngrpo.config.check import checked
from ngrpo.config.schema import ServeConfig
from ngrpo.entrypoints.composition import composed
from ngrpo.entrypoints.serve import handling_of
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.serving.app import application
from ngrpo.serving.settings import ServerSettings

WORDS_VARIABLE = "NGRPO_SERVE"

_BELOW = "/ngrpo"
_EVERYWHERE = "0.0.0.0"


class NgrpoEndpoint:
    """What vLLM's API server loads (``vllm.endpoint_plugins``).

    Attributes:
        name: in ``VLLM_PLUGINS``.
        required_tasks: of a server that may have it.
    """

    name = "ngrpo"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self._app: ASGIApp | None = None
        self._stack = ExitStack()

    def attach_router(self, app: Any) -> None:
        """Adds the routes."""
        app.mount(_BELOW, self)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Takes the engine.

        Raises:
            SettingError: the server was started without what exploration needs.
        """
        if engine_client is not None:
            loop = asyncio.get_running_loop()
            self._app = await asyncio.to_thread(self._started, engine_client, loop, args)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request below ``/ngrpo``; OpenAI's interface is at ``/ngrpo/v1`` there."""
        if self._app is None:
            raise RuntimeError("vLLM has no engine here")
        if scope["type"] == "http":
            path = str(scope["path"])
            inner = path.removeprefix(_BELOW)
            if inner.startswith("/v1/") or inner in ("/health", "/metrics"):
                path = inner
            scope = {**scope, "root_path": "", "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)

    def _started(self, client: Any, loop: asyncio.AbstractEventLoop, args: Any) -> ASGIApp:
        host = f"server.host={args.host or _EVERYWHERE}"
        words = [f"model.path={args.model}", "rollout=vllm", host, *shlex.split(os.environ.get(WORDS_VARIABLE, ""))]
        composition = composed("serve", words)
        config = checked(composition.config, ServeConfig)
        settings = ServerSettings(**config.server)

        def engine(source: ModelSource, strategy: Exploration) -> RolloutEngine:
            from ngrpo.rollout.vllm.client_engine import ServedVllmEngine

            prompt, new = config.data.max_prompt_tokens, config.rollout.max_new_tokens
            return ServedVllmEngine(client, loop, source, strategy, prompt, new)

        chosen = composition.choices["exploration"]
        return application(self._stack.enter_context(handling_of(config, chosen, settings, engine)))
