"""TRL with several processes, and with other engines than the PyTorch one in its process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="the extra ngrpo[trl] is not installed")
pytestmark = pytest.mark.trl

from forked import call_in_ranks  # noqa: E402
from trl import GRPOConfig  # noqa: E402

import ngrpo.plugins.trl as plugin  # noqa: E402
from ngrpo.data.word_problems.generator import problem  # noqa: E402
from ngrpo.errors import SettingError  # noqa: E402
from ngrpo.exploration.neighbor import NeighborMixing  # noqa: E402
from ngrpo.modeling.loading import MODEL_PATH, ModelSource  # noqa: E402
from ngrpo.plugins.trl import ExploringGRPOTrainer  # noqa: E402
from ngrpo.rewards.plain_texts import TextReward  # noqa: E402
from ngrpo.rollout.remote_engine import RemoteEngine  # noqa: E402
from ngrpo.rollout.torch_engine.engine import TorchEngine  # noqa: E402

LOGGED = ("loss", "grad_norm", "reward", "kl", "entropy", "exploration/mixed")
STRATEGY = NeighborMixing(rate=0.3)


class Noting(ExploringGRPOTrainer):
    """Keeps the responses that it has made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.responses: list[list[int]] = []
        super().__init__(*args, exploration=STRATEGY, **kwargs)

    def explore(self, prompt_ids: Any) -> Any:
        made = super().explore(prompt_ids)
        self.responses += [rollout.response_ids.tolist() for rollout in made]
        return made

    @property
    def noted(self) -> dict[str, Any]:
        steps = [entry for entry in self.state.log_history if "loss" in entry]
        return {
            "responses": self.responses,
            "steps": [{name: step[name] for name in LOGGED} for step in steps],
            "replay_difference": max(step["exploration/replay_difference"] for step in steps),
        }


def trained(folder: str, rows_a_process: int, **own: Any) -> dict[str, Any]:
    """Two generations of four prompts x four responses, and an update after each."""
    from datasets import Dataset

    one = [problem(key, "train") for key in range(16)]
    rows = [{"prompt": [{"role": "user", "content": p.question}], "answer": p.answer} for p in one]
    args = GRPOConfig(
        folder, use_cpu=True, bf16=False, report_to="none", logging_steps=1, save_strategy="no", disable_tqdm=True,
        num_generations=4, max_completion_length=48, per_device_train_batch_size=rows_a_process,
        gradient_accumulation_steps=1, steps_per_generation=1, beta=0.01, learning_rate=1e-3, max_steps=2,
        loss_type="dr_grpo", gradient_checkpointing=False, shuffle_dataset=False,
    )  # fmt: skip
    reward = TextReward()
    trainer = Noting(str(MODEL_PATH), reward, args, Dataset.from_list(rows), **own)
    trainer.train()
    reward.close()
    return trainer.noted


def train_in_a_rank(rank: int, folder: str) -> None:
    """Writes what a process of two has noted; the rollouts are those of a server whose address lies there."""
    address = Path(folder) / "url"
    engine = RemoteEngine(ModelSource(), address.read_text()) if address.exists() else None
    (Path(folder) / f"{rank}.json").write_text(json.dumps(trained(folder, 8, engine=engine)))


def refuse_in_a_rank(rank: int, folder: str) -> None:
    """Writes the sentence about an engine that stands beside one process only."""
    engine = TorchEngine(ModelSource())
    engine.several_ranks = False  # type: ignore[misc]
    try:
        trained(folder, 8, engine=engine)
    except SettingError as error:
        (Path(folder) / f"{rank}.txt").write_text(str(error))


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["responses"] == expected["responses"]
    for ours, theirs in zip(found["steps"], expected["steps"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    assert found["replay_difference"] < 1e-4


def trained_by_two(folder: Path) -> dict[str, Any]:
    call_in_ranks(train_in_a_rank, folder, 2)
    first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
    assert first["steps"] == second["steps"]
    generations = [made["responses"][8 * number : 8 * (number + 1)] for number in range(2) for made in (first, second)]
    return first | {"responses": sum(generations, [])}


@pytest.fixture(scope="module")
def by_one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return trained(str(tmp_path_factory.mktemp("one")), 16)


def test_two_processes_train_as_one_does(tmp_path: Path, by_one: dict[str, Any]) -> None:
    same(trained_by_two(tmp_path), by_one)


def test_an_engine_for_one_process_is_refused_beside_several(tmp_path: Path) -> None:
    call_in_ranks(refuse_in_a_rank, tmp_path, 2)
    for rank in range(2):
        said = (tmp_path / f"{rank}.txt").read_text()
        assert said.startswith("engine=TorchEngine as configured runs beside one training process, and there are 2;")


def test_an_engine_ends_with_the_process_unless_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr("atexit.register", at_exit.append)
    closed: list[str] = []

    class Engine(TorchEngine):
        def close(self) -> None:
            closed.append(self.model.path)

    kept, gone = Engine(ModelSource("kept")), Engine(ModelSource("gone"))
    for engine in (kept, gone):
        plugin._close_at_exit(engine)
    del gone, engine
    for function in at_exit:
        function()
    assert closed == [kept.model.path]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_server_makes_the_rollouts_that_the_engine_in_the_process_makes(
    processes: int, tmp_path: Path, by_one: dict[str, Any]
) -> None:
    server = pytest.importorskip("running_server", reason="the extra ngrpo[serve] is not installed")
    with server.running_server("exploration=neighbor") as running:
        if processes == 1:
            found = trained(str(tmp_path), 16, engine=RemoteEngine(ModelSource(), running.url))
        else:
            (tmp_path / "url").write_text(running.url)
            found = trained_by_two(tmp_path)
        weights = running.ask("GET", "/ngrpo/weights")[1]
    same(found, by_one)
    assert weights["step"] == 2


@pytest.mark.vllm
def test_vllm_in_the_process_replays(tmp_path: Path, by_one: dict[str, Any]) -> None:
    pytest.importorskip("vllm.v1")
    from ngrpo.rollout.vllm.engine import VllmEngine

    engine = VllmEngine(
        ModelSource(str(MODEL_PATH)), STRATEGY, max_prompt_tokens=128, max_new_tokens=48, enforce_eager=True
    )
    found = trained(str(tmp_path), 16, engine=engine)
    engine.close()
    assert found["replay_difference"] < 1e-4
    assert found["steps"][1]["exploration/mixed"] > 0.05
    # Before the first update; the engines' last bits may draw other tokens after it.
    assert found["responses"][:16] == by_one["responses"][:16]
