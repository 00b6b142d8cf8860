"""The plugin in vLLM's own server, with the CPU build: the same rollouts, weights that change, vLLM's routes beside."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from places import ROOT

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.soft import SoftThinking
from ngrpo.modeling.loading import ModelSource
from ngrpo.remote.connection import ServerConnection
from ngrpo.remote.explorer import RemoteExplorer
from ngrpo.remote.server_group import ServerGroup
from ngrpo.remote.tensor_parts import cut
from ngrpo.rollout.vllm.client_engine import ServedVllmEngine, serve_arguments
from ngrpo.rollout.vllm.settings import MixingSettings

pytestmark = pytest.mark.vllm
PORT = 8793
QUESTION = "Tom has 3 apples and buys 4 more. How many?"


def given_client(settings: MixingSettings | None, longest: int = 256) -> Any:
    config = SimpleNamespace(
        additional_config={} if settings is None else settings.additional_config(),
        weight_transfer_config=SimpleNamespace(),
        scheduler_config=SimpleNamespace(max_num_seqs=8),
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
        model_config=SimpleNamespace(max_model_len=longest, dtype=torch.float32),
    )
    return SimpleNamespace(vllm_config=config, model_config=config.model_config)


@pytest.mark.parametrize("settings", [None, MixingSettings(2, False, 8), MixingSettings(3, True, 8)])
def test_a_server_without_what_the_strategy_needs_is_told_the_arguments(settings: MixingSettings | None) -> None:
    client: Any = given_client(settings)
    with pytest.raises(SettingError, match=r"--worker-cls ngrpo.*--additional-config '\{\"ngrpo\": \{\"width\": 3"):
        ServedVllmEngine(client, None, ModelSource(), NeighborMixing(), 128, 64)  # type: ignore[arg-type]


def test_more_tokens_than_the_server_has_are_refused() -> None:
    client = given_client(MixingSettings(15, False, 8), longest=100)
    with pytest.raises(SettingError, match="are more than the 100 tokens of vllm serve"):
        ServedVllmEngine(client, None, ModelSource(), SoftThinking(), 128, 64)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("prometheus_fastapi_instrumentator", reason="vLLM's own server is not installed")
    folder = tmp_path_factory.mktemp("plugin")
    installed = folder / "ngrpo_endpoint-0.dist-info"  # as an installed package has it
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: ngrpo-endpoint\nVersion: 0\n")
    named = "[vllm.endpoint_plugins]\nngrpo = ngrpo.entrypoints.vllm_endpoint:NgrpoEndpoint\n"
    (installed / "entry_points.txt").write_text(named)
    ours = {"VLLM_PLUGINS": "ngrpo", "NGRPO_SERVE": "exploration=neighbor", "VLLM_CPU_KVCACHE_SPACE": "1"}
    environment = os.environ | ours | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder), *sys.path])}
    model = str(Path(ModelSource().location))
    words = ["--host", "127.0.0.1", "--port", str(PORT), "--max-model-len", "256", "--dtype", "float32"]
    needed = [word.strip("'") for word in serve_arguments(MixingSettings(3, False, 32))]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, *words, *needed]
    with (
        (folder / "log.txt").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as it,
    ):
        try:
            wait_for_health(it, log)
            yield f"http://127.0.0.1:{PORT}"
        finally:
            it.terminate()


def wait_for_health(server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 280
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()[-3000:]
        try:
            if ask("GET", "/ngrpo/health")[0] == 200:
                return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(log.read_text()[-3000:])


def ask(method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", PORT, timeout=60)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.slow
def test_vllm_serves_explored_rollouts_beside_its_own(url: str) -> None:
    import ngrpo

    exploration = {"name": "neighbor", "rate": 0.4}
    explorer = RemoteExplorer(url)
    rollouts = explorer.rollout(QUESTION, n=8, exploration=exploration, seed=3)
    local = ngrpo.sample("demo", QUESTION, "rollout=torch", exploration=exploration, n=8, seed=3, accelerator="cpu")
    assert sum(len(one.mixture.positions) for one in rollouts) > 3
    for mine, theirs in zip(local, rollouts, strict=True):
        assert torch.equal(mine.response_ids, theirs.response_ids)
        assert torch.allclose(mine.log_probs, theirs.log_probs, atol=1e-4)
    changed = {name: one.detach() * 1.02 for name, one in ModelSource().load().named_parameters()}
    sent = ServerGroup([ServerConnection(url)]).send_weights(cut(changed.items(), 1 << 18), 1)
    after = explorer.rollout(QUESTION, n=8, exploration=exploration, seed=3, oldest_step=1)
    assert {one.weight_version for one in after} == {sent.version}
    assert not torch.equal(after[0].log_probs[:1], rollouts[0].log_probs[:1])
    chat = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 8, "key": 3, "exploration": exploration}
    status, streamed = ask("POST", "/ngrpo/v1/chat/completions", chat | {"stream": True})
    assert (status, streamed[-14:]) == (200, b"data: [DONE]\n\n")
    model = json.loads(ask("GET", "/v1/models")[1])["data"][0]["id"]
    status, said = ask("POST", "/v1/completions", {"model": model, "prompt": "Tom has", "max_tokens": 4})
    assert status == 200, said
    assert b"ngrpo_rollouts_total" in ask("GET", "/ngrpo/metrics")[1]
