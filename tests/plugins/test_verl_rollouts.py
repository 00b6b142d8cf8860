"""verl's own workers of agent loops, settings and batches, on a CPU, with rollouts of a server of this project."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("verl", reason="verl is not installed: pip install verl==0.9.1 in an environment of its own")
from hydra import compose, initialize_config_dir  # noqa: E402
from places import ROOT  # noqa: E402
from running_server import QUESTION, RunningServer, running_server  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker  # noqa: E402
from verl.utils.config import omega_conf_to_dataclass  # noqa: E402
from verl.workers.rollout.base import get_rollout_class  # noqa: E402
from verl.workers.rollout.replica import RolloutMode, get_rollout_replica_class  # noqa: E402

from ngrpo.errors import RunError, SettingError  # noqa: E402
from ngrpo.exploration.neighbor import NeighborMixing  # noqa: E402
from ngrpo.modeling.loading import MODEL_PATH, ModelSource  # noqa: E402
from ngrpo.plugins import verl as _plugin  # noqa: E402, F401 (registers all of it)
from ngrpo.plugins.verl_records import FIELD  # noqa: E402
from ngrpo.remote.connection import OtherWeights, ServerUnavailable  # noqa: E402
from ngrpo.replay.hook import replayed  # noqa: E402
from ngrpo.replay.records import RecordTensors  # noqa: E402

PAGE = (ROOT / "docs/verl.md").read_text()
(COMMAND,) = re.findall(r"^python -m verl.trainer.main_ppo((?:.|\n)*?)^```$", PAGE, re.M)
CHANGED = {
    "actor_rollout_ref.model.path": str(MODEL_PATH),
    "data.max_prompt_length": "64",
    "data.max_response_length": "32",
    "+actor_rollout_ref.rollout.engine_kwargs.ngrpo.exploration.rate": "0.5",
}
SAID = dict(word.split("=", 1) for word in COMMAND.replace("\\", " ").split())
URL = "+actor_rollout_ref.rollout.engine_kwargs.ngrpo.url"
RECIPE = [f"{name}={CHANGED.get(name, value)}" for name, value in SAID.items() if name != URL]
"""That of the page, on the demo, with short responses and much mixing."""
ADDRESS = f"{URL}="


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as running:
        yield running


def test_the_recipe_changes_settings_that_are_there() -> None:
    assert SAID.keys() >= {*CHANGED, URL, "actor_rollout_ref.rollout.name"}
    assert composed(f"{URL}={SAID[URL]}").actor_rollout_ref.rollout.name == "ngrpo"


def composed(*words: str) -> Any:
    """verl's settings, by its own files."""
    folder = str(files("verl") / "trainer" / "config")
    with initialize_config_dir(folder, version_base=None):
        return compose("ppo_trainer", [*RECIPE, *words])


def made(
    server: RunningServer,
    step: int = 1,
    validate: bool = False,
    words: tuple[str, ...] = (),
    questions: tuple[Any, ...] = (QUESTION, "What is 2 + 2?"),
) -> DataProto:
    """What a worker of verl makes of two prompts, twice each."""
    worker = AgentLoopWorker(composed(ADDRESS + server.url, *words), llm_client=None)
    prompts = np.empty(4, dtype=object)
    prompts[:] = [[{"role": "user", "content": questions[row // 2]}] for row in range(4)]
    tensors = TensorDict({"dummy": torch.zeros(4, 1)}, batch_size=4)
    rest = {"raw_prompt": prompts, "index": np.array([0, 0, 1, 1]), "priority": np.arange(4)}
    given = DataProto(batch=tensors, non_tensor_batch=rest, meta_info={"global_steps": step, "validate": validate})
    return asyncio.run(worker.generate_sequences(given))


@pytest.mark.parametrize("role", ["actor", "ref"])
def test_actors_that_replay_nothing_are_refused(server: RunningServer, role: str) -> None:
    with pytest.raises(SettingError, match=f"^actor_rollout_ref.{role}.strategy=megatron replays no records"):
        made(server, words=(f"actor_rollout_ref.{role}.strategy=megatron",))


def test_images_are_refused(server: RunningServer) -> None:
    with pytest.raises(SettingError, match="a part of type image"):
        made(server, questions=([{"type": "image"}], [{"type": "text", "text": QUESTION}]))


def weights(factor: float = 1.0) -> Iterator[tuple[str, torch.Tensor]]:
    lm = ModelSource().load()
    for name, tensor in lm.state_dict().items():  # as verl does, tied weights twice
        yield name, tensor.detach() * factor


def sender(server: RunningServer) -> Any:
    config = composed(ADDRESS + server.url).actor_rollout_ref
    return get_rollout_class("ngrpo")(
        config=omega_conf_to_dataclass(config.rollout),
        model_config=omega_conf_to_dataclass(config.model),
        device_mesh=None,
    )


IMPORTED = """
import sys
from hydra import compose, initialize_config_dir
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.rollout.replica import get_rollout_replica_class
with initialize_config_dir(sys.argv[1], version_base=None):
    config = compose("ppo_trainer", sys.argv[2:])
omega_conf_to_dataclass(config.actor_rollout_ref.model)  # what each of verl's processes does first
print(get_rollout_replica_class("ngrpo").__name__)
"""


def test_verls_own_setting_imports_the_module() -> None:
    folder = str(files("verl") / "trainer" / "config")
    command = [sys.executable, "-c", IMPORTED, folder, *RECIPE, f"{URL}={SAID[URL]}"]
    done = subprocess.run(command, cwd=ROOT, check=False, text=True, capture_output=True)
    assert done.stdout.splitlines()[-1:] == ["ServedReplica"], done.stderr[-2000:]


def test_verls_worker_makes_rollouts_whose_records_replay(server: RunningServer) -> None:
    asyncio.run(sender(server).update_weights(weights(0.999), global_steps=0))
    data = made(server)
    lm = ModelSource().load()
    lm.set_attn_implementation("sdpa")
    for name, value in weights(0.999):
        lm.get_parameter(name).data.copy_(value)
    mixed, replayed_gap, plain_gap = 0, 0.0, 0.0
    for row in range(4):
        ids = data.batch["input_ids"][row, data.batch["attention_mask"][row].bool()]
        theirs = data.batch["rollout_log_probs"][row, data.batch["response_mask"][row].bool()]
        records = RecordTensors.from_tensors(data.non_tensor_batch[FIELD][row]).map(lambda tensor: tensor[None])
        mixed += len(records.mixed().slots)
        plain_gap = max(plain_gap, gap(lm, ids, theirs))
        with replayed(lm, records):
            replayed_gap = max(replayed_gap, gap(lm, ids, theirs))
    assert mixed > 4
    assert replayed_gap < 1e-4
    assert plain_gap > 1e-2
    assert set(data.non_tensor_batch["max_global_steps"]) == {0}


@torch.no_grad()
def gap(lm: Any, ids: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference between a model's log-probs of the last tokens and others."""
    scores = lm(input_ids=ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
    return (scores[-len(theirs) :] - theirs).abs().max().item()


def test_a_step_makes_the_same_rollouts_again_and_another_step_others(server: RunningServer) -> None:
    asyncio.run(sender(server).update_weights(weights(), global_steps=1))
    first, again, later = (made(server, step).batch["responses"] for step in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    assert not torch.equal(first[0], first[1])


def test_a_validation_samples_plainly_and_has_no_records(server: RunningServer) -> None:
    data = made(server, validate=True)
    assert FIELD not in data.non_tensor_batch


def test_weights_that_are_too_old_make_no_rollouts() -> None:
    with running_server() as server:
        with pytest.raises(OtherWeights):
            made(server)  # the server's own, as after it was started again
        own = sender(server)
        for steps in (0, 3):
            asyncio.run(own.update_weights(weights(1 - steps / 1000), global_steps=steps))
        assert set(made(server, step=4).non_tensor_batch["min_global_steps"]) == {3}
        with pytest.raises(OtherWeights):
            made(server, step=5)
        older = made(server, step=5, words=("trainer.v1.trainer_mode=colocate_async",))  # verl says how old they may be
        assert set(older.non_tensor_batch["max_global_steps"]) == {3}


def test_a_server_that_does_not_take_the_weights_stops_the_training(server: RunningServer) -> None:
    both = sender(server)
    other = sender(RunningServer(1, server.app))
    both._servers.servers.extend(other._servers.servers)
    with pytest.raises(ServerUnavailable, match="has not taken the weights of step 7"):
        asyncio.run(both.update_weights(weights(), global_steps=7))


def test_what_the_servers_do_not_do_is_refused(server: RunningServer) -> None:
    def refused(*words: str, mode: RolloutMode = RolloutMode.HYBRID) -> str:
        config = composed(*words).actor_rollout_ref
        replica = get_rollout_replica_class("ngrpo")(
            replica_rank=0, config=config.rollout, model_config=config.model, gpus_per_node=1
        )
        replica.rollout_mode = mode
        with pytest.raises(SettingError) as error:
            asyncio.run(replica.launch_servers())
        return str(error.value)

    address, rollout = ADDRESS + server.url, "actor_rollout_ref.rollout"
    assert "names no url and exploration" in refused()
    assert "val_kwargs.temperature=0 is greedy" in refused(address, f"{rollout}.val_kwargs.temperature=0")
    assert f"{rollout}.top_p=0.9 truncates" in refused(address, f"{rollout}.top_p=0.9")
    assert "ignore_eos=true" in refused(address, f"{rollout}.ignore_eos=true")
    assert "engine_kwargs.ngrpo.rate is no setting" in refused(address, f"+{rollout}.engine_kwargs.ngrpo.rate=0.1")
    name = f"{rollout}.engine_kwargs.ngrpo.exploration.name="
    assert "exploration.name=other is no strategy" in refused(address, name + "other")
    assert "scored by a density" in refused(
        address, name + "gumbel", f"~{rollout}.engine_kwargs.ngrpo.exploration.rate"
    )
    assert "exploration.rate is no setting of token" in refused(address, name + "token")
    assert "response_length=9999 is more than" in refused(address, "data.max_response_length=9999")
    assert "no model of rewards" in refused(address, mode=RolloutMode.COLOCATED)
    with pytest.raises(SettingError, match="merge=False sends adapters alone"):
        asyncio.run(sender(server).update_weights(weights(), peft_config=object()))
    quantised = [(name, tensor.to(torch.int8)) for name, tensor in weights()]
    with pytest.raises(RunError, match="says nothing without the scale"):
        asyncio.run(sender(server).update_weights(quantised, global_steps=9))


def test_the_strategy_is_the_servers_own(server: RunningServer) -> None:
    settings = _plugin.verl_servers.ServerSettings.of(
        omega_conf_to_dataclass(composed(ADDRESS + server.url).actor_rollout_ref.rollout)
    )
    strategy = settings.strategy()
    assert isinstance(strategy, NeighborMixing)
    assert strategy.rate == 0.5
