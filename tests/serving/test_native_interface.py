"""Rollouts from a server are those of an engine in the process, bit for bit; weights come whole or not at all."""

import hashlib
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from running_server import QUESTION, RunningServer, running_server

import ngrpo
from ngrpo.exploration.random import request_key
from ngrpo.modeling.loading import ModelSource
from ngrpo.remote.connection import OtherWeights, ServerConnection
from ngrpo.remote.explorer import RemoteExplorer
from ngrpo.remote.messages import request_message, rollout_of
from ngrpo.remote.server_group import ServerGroup
from ngrpo.remote.tensor_parts import TensorPart, cut
from ngrpo.types.rollouts import Request

STRATEGIES: list[dict[str, Any]] = [
    {"name": "token"},
    {"name": "neighbor", "rate": 0.5, "k": 4},
    {"name": "neighbor_entropy"},
    {"name": "soft"},
    {"name": "gumbel"},
    {"name": "gaussian"},
    {"name": "hrpo"},
]


@pytest.fixture
def own() -> Iterator[RunningServer]:
    """A server whose weights may change."""
    with running_server("exploration=neighbor") as running:
        yield running


def send(server: RunningServer, tensors: dict[str, torch.Tensor], step: int) -> str:
    group = ServerGroup([ServerConnection(server.url)])
    return group.send_weights(cut(tensors.items(), 1 << 18), step)[0]


def changed_weights(factor: float) -> dict[str, torch.Tensor]:
    return {name: tensor.detach() * factor for name, tensor in ModelSource().load().named_parameters()}


def test_requests_open_no_files(server: RunningServer) -> None:
    """A file that is read for each request costs the web server's thread more than the request itself."""
    explorer, opened = RemoteExplorer(server.url), list[str]()
    watching = False

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "open":
            opened.append(str(arguments[0]))

    def ask() -> None:
        for exploration in STRATEGIES:
            explorer.rollout(["What is 2 + 2?"], n=1, exploration=exploration, seed=5)

    ask()
    sys.addaudithook(watch)  # for good, and silent after this test
    watching = True
    ask()
    watching = False
    assert not [path for path in opened if not path.startswith(("/proc", "/sys", "/dev"))]


@pytest.mark.parametrize("exploration", STRATEGIES, ids=[one["name"] for one in STRATEGIES])
def test_remote_rollouts_are_local_ones_bit_for_bit(server: RunningServer, exploration: dict[str, Any]) -> None:
    local = ngrpo.sample("demo", [QUESTION, "What is 2 + 2?"], exploration=exploration, n=3, seed=5, accelerator="cpu")
    remote = RemoteExplorer(server.url).rollout([QUESTION, "What is 2 + 2?"], n=3, exploration=exploration, seed=5)
    assert sum(len(one.mixture.positions) for one in remote) > 0 or exploration["name"] == "token"
    for mine, theirs in zip(local, remote, strict=True):
        assert (mine.key, mine.text, mine.stop_reason) == (theirs.key, theirs.text, theirs.stop_reason)
        for name in ("prompt_ids", "response_ids", "log_probs"):
            assert torch.equal(getattr(mine, name), getattr(theirs, name)), name
        assert torch.equal(mine.mixture.positions, theirs.mixture.positions)
        for channel, other in zip(mine.mixture.record, theirs.mixture.record, strict=True):
            assert (channel is None) is (other is None)
            assert channel is None or (channel.dtype == other.dtype and torch.equal(channel, other))


def test_rollouts_of_a_server_are_scored_by_the_trainer_to_the_same_log_probs(server: RunningServer) -> None:
    (mine,) = ngrpo.sample("demo", QUESTION, exploration={"name": "neighbor", "rate": 0.5}, seed=5, accelerator="cpu")
    (scores,) = ngrpo.score("demo", mine, accelerator="cpu")
    (remote,) = RemoteExplorer(server.url).rollout(QUESTION, exploration={"name": "neighbor", "rate": 0.5}, seed=5)
    assert (scores.log_prob - remote.log_probs).abs().max() < 1e-4


def test_prompts_may_be_texts_ids_and_conversations(server: RunningServer) -> None:
    explorer = RemoteExplorer(server.url)
    messages = [{"role": "user", "content": QUESTION}]
    (text,) = explorer.rollout(QUESTION)
    (chat,) = explorer.rollout(messages)
    (ids,) = explorer.rollout(text.prompt_ids.tolist())
    assert text.text == chat.text == ids.text
    several = explorer.rollout([QUESTION, text.prompt_ids.tolist(), messages], n=2, max_new_tokens=4)
    assert len(several) == 6
    assert len({one.key for one in several}) == 6


def test_a_prefix_goes_on_as_the_rollout_did(server: RunningServer) -> None:
    explorer = RemoteExplorer(server.url)
    asked = {"exploration": {"name": "neighbor", "rate": 0.5}, "requests": [{}]}
    (whole,) = explorer.rollout(QUESTION, exploration=asked["exploration"], seed=2)
    prefix = whole.cut(5)
    request = Request(tuple(whole.prompt_ids.tolist()), whole.key, prefix=prefix)
    said = server.post("/ngrpo/generate", asked | {"requests": [request_message(request)]})
    made = rollout_of(said["rollouts"][0], request.prompt_ids)
    assert torch.equal(made.response_ids, whole.response_ids)
    assert made.prefix_length == 5


def test_many_clients_get_what_each_of_them_would_get_alone(server: RunningServer) -> None:
    """Three strategies, and requests that join each other's batches: tokens and records depend on the key alone."""
    explorer = RemoteExplorer(server.url)
    kinds: list[dict[str, Any]] = [{"name": "token"}, {"name": "neighbor", "rate": 0.5}, {"name": "gumbel"}]

    def ask(number: int) -> Any:
        return explorer.rollout(QUESTION, exploration=kinds[number % 3], seed=number % 24)[0]

    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(ask, range(96)))
    for number, one in enumerate(found):
        alone = found[number % 24] if number % 24 % 3 == number % 3 else ask(number)
        assert torch.equal(one.response_ids, alone.response_ids)
        assert torch.equal(one.mixture.record.ids, alone.mixture.record.ids)
        assert torch.allclose(one.log_probs, alone.log_probs, atol=1e-4)


def test_new_weights_are_served_and_told(own: RunningServer) -> None:
    explorer = RemoteExplorer(own.url)
    (before,) = explorer.rollout(QUESTION)
    assert before.weight_step == 0
    version = send(own, changed_weights(1.01), step=7)
    (after,) = explorer.rollout(QUESTION, oldest_step=7)
    assert (after.weight_version, after.weight_step) == (version, 7)
    assert not torch.equal(before.log_probs[:1], after.log_probs[:1])
    told = explorer.weights()[own.url]
    assert (told["version"], told["step"]) == (version, 7)
    assert 0 <= told["age_s"] < 60
    send(own, changed_weights(1.0), step=8)
    (again,) = explorer.rollout(QUESTION)
    assert torch.equal(again.log_probs, before.log_probs)


def test_each_response_is_of_one_set_of_weights(own: RunningServer) -> None:
    """Clients ask while weights change: what each gets is what its version makes, from the first token to the last."""
    explorer = RemoteExplorer(own.url)
    factors = {send(own, changed_weights(1 + step / 50), step): 1 + step / 50 for step in (1, 2)}
    found: list[Any] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            found.extend(explorer.rollout(QUESTION, n=2))

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    for step in range(3, 9):
        send(own, changed_weights(1 + (step % 2 + 1) / 50), step)
    stop.set()
    for client in clients:
        client.join()
    versions = {one.weight_version for one in found}
    assert versions == set(factors)
    of_version: dict[tuple[str, int], Any] = {}
    for one in found:
        first = of_version.setdefault((one.weight_version, one.key), one)
        assert torch.equal(first.response_ids, one.response_ids)
        assert torch.allclose(first.log_probs, one.log_probs, atol=1e-4)


def refuse_weights(server: RunningServer, tensors: dict[str, torch.Tensor]) -> str:
    part = TensorPart.of(tensors)
    assert server.ask("PUT", f"/ngrpo/tensors/{part.name}", part.octets)[0] == 204
    return server.refusal("/ngrpo/weights", {"tensors": [part.name], "step": 5})


def test_weights_of_another_model_change_nothing(own: RunningServer) -> None:
    (before,) = RemoteExplorer(own.url).rollout(QUESTION)
    whole = changed_weights(2.0)
    name = "model.norm.weight"
    assert "the weights lack model.norm.weight" in refuse_weights(
        own, {key: tensor for key, tensor in whole.items() if key != name}
    )
    assert "have the unknown other" in refuse_weights(own, whole | {"other": torch.zeros(1)})
    assert "send those of the same model" in refuse_weights(own, whole | {name: torch.zeros(3)})
    assert "send those of the same model" in refuse_weights(own, whole | {name: whole[name].long()})
    (after,) = RemoteExplorer(own.url).rollout(QUESTION)
    assert torch.equal(before.log_probs, after.log_probs)
    assert after.weight_step == 0


def test_tensors_are_what_their_checksum_says(server: RunningServer) -> None:
    part = TensorPart.of({"a": torch.zeros(2)})
    path = f"/ngrpo/tensors/{part.name}"
    assert server.ask("HEAD", path)[0] == 404
    status, said, _ = server.ask("PUT", path, part.octets[:-1] + b"\x01")
    assert status == 400
    assert "have the SHA-256" in said["error"]["message"]
    other = TensorPart(b"no tensors", "0" * 64)
    name = hashlib.sha256(other.octets).hexdigest()
    assert "no safetensors" in server.ask("PUT", f"/ngrpo/tensors/{name}", other.octets)[1]["error"]["message"]
    assert server.ask("PUT", "/ngrpo/tensors/short", part.octets)[0] == 400
    assert server.ask("PUT", path, part.octets)[0] == 204
    assert server.ask("HEAD", path)[0] == 200


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"neighbors": torch.full((576, 3), 576, dtype=torch.int32)}, "names rows outside of the model's 576"),
        ({"neighbors": torch.full((576, 3), -1, dtype=torch.int32)}, "names rows outside of the model's 576"),
        ({"neighbors": torch.zeros(2, 3, dtype=torch.int32)}, "do not fit NeighborMixing"),
        ({"others": torch.zeros(576, 3, dtype=torch.int32)}, "do not fit NeighborMixing"),
    ],
)
def test_tables_that_do_not_fit_are_refused(server: RunningServer, table: Any, said: str) -> None:
    part = TensorPart.of(table)
    server.ask("PUT", f"/ngrpo/tensors/{part.name}", part.octets)
    request = {"requests": [{"prompt_ids": [5, 6], "key": 1}], "tables": part.name}
    assert said in server.refusal("/ngrpo/generate", request)


def test_what_is_not_in_the_store_is_asked_for_again(server: RunningServer) -> None:
    request = {"requests": [{"prompt_ids": [5, 6], "key": 1}], "tables": "f" * 64}
    status, said, _ = server.ask("POST", "/ngrpo/generate", request)
    assert (status, said["error"]["code"]) == (409, "missing_tensors")


def test_older_weights_than_asked_for_are_a_clear_error(server: RunningServer) -> None:
    with pytest.raises(OtherWeights, match="the weights are of step 0, older than the oldest_step=3"):
        RemoteExplorer(server.url).rollout(QUESTION, oldest_step=3)


def test_the_key_is_the_whole_randomness(server: RunningServer) -> None:
    key = request_key(5, 0, 1)
    (rollout,) = RemoteExplorer(server.url).rollout(QUESTION, n=2, seed=5)[1:]
    assert rollout.key == key
    body = {"requests": [{"prompt_ids": rollout.prompt_ids.tolist(), "key": key}]}
    first, second = (server.post("/ngrpo/generate", body)["rollouts"][0] for _ in range(2))
    assert first == second
    assert first["response_ids"] == rollout.response_ids.tolist()
