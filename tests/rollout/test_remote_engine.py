"""The engine on other machines: training against servers is training in the process, and what fails is said."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from made_rollouts import same_distributions
from running_server import QUESTION, RunningServer, running_server

import ngrpo
from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.remote.connection import ServerUnavailable
from ngrpo.rollout.engine import MeasuredEngine
from ngrpo.rollout.remote_engine import RemoteEngine
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Request, Sampling

CPU = torch.device("cpu")
SAMPLING = Sampling(1.0, 12, (0,))
REQUESTS = [Request((5, 6, 7 + number), number) for number in range(6)]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as running:
        yield running


def started(*urls: str, **settings: Any) -> RemoteEngine:
    engine = RemoteEngine(ModelSource(), list(urls), **({"retries": 1} | settings))
    engine.start(CPU)
    return engine


def weights(factor: float = 1.0) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in ModelSource().load().named_parameters():
        yield name, tensor.detach() * factor


def train(folder: Path, *words: str) -> tuple[str, Any]:
    """Returns the checksum of the trained weights, and the summary."""
    short = ["debug=fast", "trainer.iterations=3", "trainer=cpu", f"hydra.run.dir={folder}"]
    summary = ngrpo.train(*short, *words)
    assert summary.model is not None
    return hashlib.sha256((summary.model / "model.safetensors").read_bytes()).hexdigest(), summary


@pytest.mark.parametrize(
    "method",
    [
        ["exploration=hrpo", "algo=grpo"],
        ["exploration=neighbor_annealed", "exploration.refresh_every=2", "algo=dr_grpo"],
        ["exploration=min_p", "algo=grpo"],
        ["exploration=min_p", "algo=treepo", "rollout.scheduler.segment=100"],  # longer than any response of the server
        ["exploration=latent_gumbel", "algo=gspo_token", "rollout/scheduler=mixtures"],
        ["exploration=neighbor", "algo=grpo", "rollout/scheduler=latr"],
    ],
    ids=["hrpo", "annealed", "truncated", "truncated trees", "latent trees", "forced tokens"],
)
def test_training_against_a_server_is_training_in_the_process(
    server: RunningServer, method: list[str], tmp_path: Path
) -> None:
    """The server keeps the weights of the trainings before: they do not count."""
    here, _ = train(tmp_path / "here", *method, "rollout=torch")
    there, summary = train(tmp_path / "there", *method, "rollout=server", f"rollout.engine.url={server.url}")
    assert here == there
    steps = [one["rollout/weights_step"] for one in summary.metrics]
    assert steps == [steps[0], steps[0] + 1, steps[0] + 2]
    assert all(0 <= one["rollout/weights_age_s"] < 60 for one in summary.metrics)
    assert all(one["rollout/transfer_mib"] > 1 and one["time/transfer_s"] > 0 for one in summary.metrics)
    assert "weights of step" not in summary.log.read_text()
    assert "were sent to the servers" in summary.log.read_text()


def test_a_server_that_dies_in_the_middle_is_done_without(server: RunningServer, tmp_path: Path) -> None:
    """From its second call for rollouts on it hangs up; the other makes its share, and the run goes on."""
    with running_server() as mortal:
        calls = []
        whole = mortal.app

        async def dying(scope: Any, receive: Any, send: Any) -> None:
            calls.append(scope["path"])
            if calls.count("/ngrpo/generate") > 1:
                raise ConnectionAbortedError("killed")
            await whole(scope, receive, send)

        mortal.app = dying
        urls = f"rollout.engine.url=[{mortal.url},{server.url}]"
        _, summary = train(tmp_path / "run", "exploration=neighbor", "rollout=server", urls)
    assert summary.iterations == 3
    assert calls.count("/ngrpo/generate") >= 2


def test_all_servers_gone_is_one_sentence(tmp_path: Path) -> None:
    with running_server() as mortal:
        whole, calls = mortal.app, []

        async def dying(scope: Any, receive: Any, send: Any) -> None:
            calls.append(scope["path"])
            if "/ngrpo/generate" in calls:
                raise ConnectionAbortedError("killed")
            await whole(scope, receive, send)

        mortal.app = dying
        words = ["rollout=server", f"rollout.engine.url={mortal.url}", "rollout.engine.retries=0"]
        with pytest.raises(RunError, match="the rollout engine") as error:
            train(tmp_path / "run", *words)
    assert mortal.url in str(error.value)


def test_nobody_there_is_said_before_training(tmp_path: Path) -> None:
    words = ["rollout=server", "rollout.engine.url=http://127.0.0.1:9", "rollout.engine.retries=0"]
    with pytest.raises(RunError, match="http://127.0.0.1:9 does not answer"):
        train(tmp_path / "run", *words)


def test_weights_beyond_the_range_of_a_server_are_refused() -> None:
    engine = RemoteEngine(ModelSource(), "http://127.0.0.1:9")
    engine._about = {"dtype": "float16", "embedding": "table"}
    sent = engine._with_table([("table", torch.tensor([[6e4]])), ("late", torch.tensor([1e5]))])
    assert next(sent)[1].dtype == torch.float16
    with pytest.raises(
        RunError, match=r"the weight late has numbers beyond the 65504 of rollout\.engine\.dtype=float16"
    ):
        next(sent)


def test_two_servers_make_what_one_makes(server: RunningServer) -> None:
    with running_server() as other:
        engine = started(server.url, other.url)
        engine.sync_weights(weights(1.01))
        bound = bind(NeighborMixing(rate=0.5), engine.embedding(), Vocabulary.of(ModelSource().tokenizer()))
        together = engine.generate(REQUESTS, SAMPLING, bound)
        recorded = replace(SAMPLING, distributions=True)
        asked = [replace(one, forced_token=9, likeliest=number % 2 > 0) for number, one in enumerate(REQUESTS)]
        steered = engine.generate(asked, recorded, bound)
    local = TorchEngine(ModelSource())
    local.start(CPU)
    local.sync_weights(weights(1.01))
    for mine, theirs in zip(local.generate(REQUESTS, SAMPLING, bound), together, strict=True):
        assert torch.equal(mine.response_ids, theirs.response_ids)
        assert torch.allclose(mine.log_probs, theirs.log_probs, atol=1e-5)
    for mine, theirs in zip(local.generate(asked, recorded, bound), steered, strict=True):
        assert theirs.response_ids[0] == 9
        assert torch.equal(mine.response_ids, theirs.response_ids)
        assert same_distributions(mine, theirs)


def test_a_server_that_was_started_again_makes_nothing_with_its_old_weights(server: RunningServer) -> None:
    engine = started(server.url)
    engine.sync_weights(weights(1.01))
    bound = bind(TokenSampling(), engine.embedding(), Vocabulary.of(ModelSource().tokenizer()))
    other = started(server.url)
    other.sync_weights(weights(1.02))
    with pytest.raises(ServerUnavailable, match="were asked for; send those first"):
        engine.generate(REQUESTS, SAMPLING, bound)
    engine.sync_weights(weights(1.01))
    assert len(engine.generate(REQUESTS, SAMPLING, bound)) == len(REQUESTS)


def test_tables_that_a_server_has_dropped_are_sent_again(server: RunningServer, monkeypatch: Any) -> None:
    engine = started(server.url)
    bound = bind(NeighborMixing(), engine.embedding(), Vocabulary.of(ModelSource().tokenizer()))
    puts = engine._group.put
    skipped = iter([True])
    monkeypatch.setattr(engine._group, "put", lambda part: None if next(skipped, False) else puts(part))
    assert len(engine.generate(REQUESTS, SAMPLING, bound)) == len(REQUESTS)


def test_the_embedding_is_the_served_one(server: RunningServer) -> None:
    engine = started(server.url)
    engine.sync_weights(weights())
    engine.close()
    engine.start(CPU)
    table = ModelSource().load().get_input_embeddings().weight
    assert torch.equal(engine.embedding(), table)
    engine.sync_weights(weights(2.0))
    assert torch.equal(engine.embedding(), 2 * table)
    assert (engine.dtype, engine.tf32) == (torch.float32, False)
    assert isinstance(engine, MeasuredEngine)


@pytest.mark.parametrize(
    ("strategy", "named"),
    [
        (NeighborMixing(rate=0.3, k=5), {"rate": 0.3, "k": 5}),
        (NeighborMixing(metric="l2"), {}),
        (NeighborMixing(excluded_ids=(3, 4)), {"excluded_ids": [3, 4]}),
        (TokenSampling(top_p=0.9).unrecorded(), {"top_p": 0.9, "largest_support": 0}),
        (MinPSampling(0.2, largest_support=40), {"p_min": 0.2, "largest_support": 40}),
        (GumbelSoftThinking(), {}),
    ],
)
def test_a_strategy_is_called_by_name_and_numbers(server: RunningServer, strategy: Any, named: dict[str, Any]) -> None:
    engine = started(server.url)
    told = engine._named(strategy)
    known = engine._strategies[told.pop("name")]
    assert known["class"] == f"{type(strategy).__module__}.{type(strategy).__qualname__}"
    assert named.items() <= told.items()
    assert not any(isinstance(value, str) for value in told.values())


def test_a_strategy_that_the_server_cannot_name_is_refused(server: RunningServer) -> None:
    with pytest.raises(SettingError, match="is not known to the server, which takes names and numbers only"):
        started(server.url)._named(NeighborMixing(end_token="<stop>"))
    with running_server("exploration=neighbor", "exploration.end_token='<|im_end|>'") as own:
        assert started(own.url)._named(NeighborMixing(end_token="<|im_end|>")) == {"name": "neighbor"}


def test_servers_of_different_models_are_refused(server: RunningServer) -> None:
    with running_server("model.dtype=bfloat16") as other, pytest.raises(SettingError, match="start all servers with"):
        started(server.url, other.url)


@pytest.mark.parametrize("setting", ["timeout_s", "part_mib"])
def test_settings_out_of_range_are_refused(setting: str) -> None:
    with pytest.raises(SettingError, match=f"rollout.engine.{setting}=0 sends nothing"):
        RemoteEngine(ModelSource(), **{setting: 0})


def test_samples_and_other_threads_use_a_server_too(server: RunningServer) -> None:
    started(server.url).sync_weights(weights())
    words = {"rollout": {"name": "server", "engine": {"url": server.url}}, "accelerator": "cpu"}
    here = ngrpo.sample("demo", QUESTION, n=2, seed=3, accelerator="cpu")
    there = ngrpo.sample("demo", QUESTION, n=2, seed=3, **words)
    assert [one.text for one in here] == [one.text for one in there]
    engine = started(server.url)
    bound = bind(TokenSampling(), engine.embedding(), Vocabulary.of(ModelSource().tokenizer()))
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.extend(engine.generate(REQUESTS, SAMPLING, bound))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 * len(REQUESTS)
