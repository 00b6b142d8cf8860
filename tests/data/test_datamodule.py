import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from tiny_tokenizer import tiny_tokenizer

from ngrpo.data.curriculum import RisingDifficulty, SampledByPassRate
from ngrpo.data.datamodule import PromptDataModule
from ngrpo.data.sources import BOXED_INSTRUCTION
from ngrpo.distributed.collectives import Ranks
from ngrpo.errors import SettingError
from ngrpo.types.problems import Problem, Prompt, PromptBatch


class Recorder(LightningModule):
    """Records the keys it is trained on, saves a checkpoint after one batch and stops after another."""

    def __init__(self, stop_after: int, checkpoint: Path, save_after: int | None = None) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.stop_after, self.checkpoint, self.save_after = stop_after, checkpoint, save_after
        self.seen: list[list[int]] = []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch: PromptBatch, batch_idx: int) -> None:
        assert batch.experience is None
        batch.experience = batch_idx
        self.seen.append([prompt.problem.key for prompt in batch.prompts])
        optimizer = self.optimizers()
        for _ in range(2):
            optimizer.zero_grad()
            self.manual_backward(self.weight)
            optimizer.step()

    def on_train_batch_end(self, outputs: Any, batch: PromptBatch, batch_idx: int) -> None:
        assert batch.experience == batch_idx
        if len(self.seen) == self.save_after:
            self.trainer.save_checkpoint(self.checkpoint)
        if len(self.seen) == self.stop_after:
            self.trainer.should_stop = True


def data(path: Path | str, **settings: Any) -> PromptDataModule:
    defaults: dict[str, Any] = {"tokenizer": tiny_tokenizer(), "prompts_per_batch": 4, "seed": 0}
    return PromptDataModule(**defaults | {"path": str(path)} | settings)


def fit(module: Recorder, datamodule: PromptDataModule, resume: Path | None = None, **settings: Any) -> None:
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        **{"max_epochs": 1} | settings,
    )
    trainer.fit(module, datamodule=datamodule, ckpt_path=resume)


def write(file: Path, number: int) -> Path:
    rows = [{"problem": f"what is {i}", "answer": str(i)} for i in range(number)]
    rows[1]["answer"] = ""
    rows[2]["problem"] = "what is " * 50
    file.write_text(json.dumps(rows))
    return file


@pytest.mark.parametrize("rows", [100, 8])  # 8: six usable ones, so that the save falls into the third epoch
def test_resume_under_lightning_sees_the_same_prompts(tmp_path: Path, rows: int) -> None:
    path = write(tmp_path / "rows.json", rows)
    checkpoint = tmp_path / "half.ckpt"
    settings = {"max_prompt_tokens": 40}
    straight, straight_data = Recorder(6, checkpoint, save_after=3), data(path, **settings)
    fit(straight, straight_data)
    resumed, resumed_data = Recorder(3, checkpoint), data(path, **settings)
    fit(resumed, resumed_data, resume=checkpoint)
    assert len(straight.seen) == 6
    assert resumed.seen == straight.seen[3:]
    assert resumed.weight == straight.weight
    assert resumed_data.rows_left_out == straight_data.rows_left_out


def test_the_stream_goes_on_across_lightning_epochs(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.json", 30)
    one, several = Recorder(6, tmp_path / "unused"), Recorder(6, tmp_path / "unused")
    fit(one, data(path))
    fit(several, data(path), limit_train_batches=2, max_epochs=3)
    assert several.seen == one.seen


def test_the_checkpoint_is_loadable_without_pickled_objects(tmp_path: Path) -> None:
    checkpoint = tmp_path / "half.ckpt"
    fit(Recorder(2, checkpoint, save_after=2), data("demo", eval_problems=1))
    (state,) = torch.load(checkpoint, weights_only=True)["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    assert state == {
        "identity": "demo:train",
        "seed": 0,
        "iteration": 2,
        "sources": [{"epoch": 0, "position": 8, "drawn": 8, "left_out": {}}],
        "curriculum": {},
    }


def test_rows_left_out_of_a_file_are_counted_before_training_whatever_the_epochs(tmp_path: Path) -> None:
    surveyed = data(write(tmp_path / "rows.json", 8), max_prompt_tokens=40)
    assert surveyed.rows_left_out == {"missing_answer": 1, "prompt_too_long": 1}
    fit(Recorder(6, tmp_path / "unused"), surveyed)  # 24 prompts of 6 usable rows: four epochs
    assert surveyed.rows_left_out == {"missing_answer": 1, "prompt_too_long": 1}
    assert data(tmp_path / "rows.json").rows_left_out == {"missing_answer": 1}


@pytest.mark.filterwarnings("ignore:data.eval_path=demo")
def test_rows_left_out_of_a_stream_are_those_met_so_far(tmp_path: Path) -> None:
    from ngrpo.data.word_problems.generator import problem

    lengths = [len(problem(key, "train").question.split()) for key in range(50)]
    limit = sorted(lengths)[25]
    markers = len(data("demo", eval_problems=1).eval_prompts()[0].ids) - len(problem(0, "held_out").question.split())
    streamed = data("demo", max_prompt_tokens=limit + markers)
    assert streamed.rows_left_out == {}
    module = Recorder(3, tmp_path / "unused")
    fit(module, streamed)
    met = [length > limit for length in lengths[: module.seen[-1][-1] + 1]]
    assert met.count(False) == 12
    assert streamed.rows_left_out == {"prompt_too_long": met.count(True)}
    assert met.count(True) > 3


def test_resume_on_other_data_is_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "half.ckpt"
    fit(Recorder(2, checkpoint, save_after=2), data(write(tmp_path / "rows.json", 30)))
    other = data(write(tmp_path / "rows.json", 31))
    with pytest.raises(SettingError, match=r"data\.path=rows\.json@"):
        fit(Recorder(2, checkpoint), other, resume=checkpoint)


def test_a_data_rank_takes_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, second = (data(write(tmp_path / "rows.json", 30)) for _ in range(2))
    batch = next(iter(whole.train_dataloader()))
    monkeypatch.setattr("ngrpo.data.datamodule.ranks", lambda: Ranks(1, 2, tensor_rank=1, tensor_size=2))
    share = next(iter(second.train_dataloader()))
    assert share.prompts == batch.prompts[1::2]


def test_evaluation_prompts_of_the_demo_are_held_out() -> None:
    from ngrpo.data.word_problems.generator import problem

    prompts = data("demo", eval_problems=3).eval_prompts()
    assert [prompt.problem for prompt in prompts] == [problem(key, "held_out") for key in range(3)]


def test_evaluation_takes_the_first_usable_rows_and_reports_what_it_excluded(tmp_path: Path) -> None:
    train, held_out = write(tmp_path / "train.json", 8), write(tmp_path / "test.json", 12)
    assert data(train).eval_prompts() == []
    settings = {"eval_problems": 4, "max_prompt_tokens": 40, "drop_eval_overlap": False}
    with pytest.warns(UserWarning, match=r"data\.eval_path=test\.json.*'missing_answer': 1, 'prompt_too_long': 1"):
        prompts = data(train, eval_path=str(held_out), **settings).eval_prompts()
    assert [prompt.problem.key for prompt in prompts] == [0, 3, 4, 5]
    with pytest.raises(SettingError, match=r"data\.eval_path=test\.json.*no usable row.*data\.max_prompt_tokens"):
        data(train, eval_path=str(held_out), max_prompt_tokens=1)


def test_the_instruction_is_the_sources_own_unless_given(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.json", 3)

    def length(where: str, **settings: Any) -> int:
        settings |= {"eval_path": where, "eval_problems": 1, "drop_eval_overlap": False}
        return len(data(path, **settings).eval_prompts()[0].ids)

    plain = length(str(path), instruction="")
    assert length(str(path)) == plain + len(BOXED_INSTRUCTION.split())
    assert length(str(path), instruction="please box") == plain + 2
    assert length("demo") == length("demo", instruction="")


@pytest.mark.parametrize("setting", ["prompts_per_batch", "eval_problems", "max_prompt_tokens"])
def test_sizes_must_be_positive(setting: str) -> None:
    with pytest.raises(SettingError, match=rf"data\.{setting}=0 must be at least 1"):
        data("demo", **{setting: 0})


def rows_file(file: Path, questions: list[str], **common: Any) -> str:
    rows = [{"problem": q, "answer": str(i), "difficulty": float(i)} | common for i, q in enumerate(questions)]
    file.write_text(json.dumps(rows))
    return str(file)


def keys_of_one_epoch(datamodule: PromptDataModule, batches: int) -> set[int]:
    datamodule.trainer = Trainer(accelerator="cpu", devices=1, logger=False, barebones=True)
    walk = iter(datamodule.train_dataloader())
    return {prompt.problem.key for _ in range(batches) for prompt in next(walk).prompts}


def test_problems_of_a_benchmark_are_evaluation_problems_too(tmp_path: Path) -> None:
    train = rows_file(tmp_path / "train.json", ["what is 1", "what is 2", "what is 3"])
    benchmarks = {
        "a": [Prompt(Problem(0, "What is 3.", "3"), (1,))],
        "b": [Prompt(Problem(0, "what is  1", "1"), (1,))],
    }
    assert data(train, benchmarks=benchmarks).rows_left_out == {"in_evaluation": 2}
    assert data(train, benchmarks=benchmarks, drop_eval_overlap=False).rows_left_out == {}


def test_doubles_and_evaluation_problems_are_excluded_unless_kept(tmp_path: Path) -> None:
    train = rows_file(tmp_path / "train.json", ["what is 1", "what is 2", "What  is 1?", "what is 3", "what is 4"])
    held_out = rows_file(tmp_path / "test.json", ["what is 9", "What is 3."])
    settings = {"eval_path": held_out, "eval_problems": 1, "prompts_per_batch": 1}
    dropped = data(train, **settings)
    assert dropped.rows_left_out == {"duplicate": 1, "in_evaluation": 1}  # also beyond eval_problems
    assert keys_of_one_epoch(dropped, 3) == {0, 1, 4}
    kept = data(train, drop_duplicates=False, drop_eval_overlap=False, **settings)
    assert kept.rows_left_out == {}
    assert keys_of_one_epoch(kept, 5) == {0, 1, 2, 3, 4}
    assert len(kept.eval_prompts()) == len(dropped.eval_prompts()) == 1


def test_difficulty_bounds_need_a_difficulty(tmp_path: Path) -> None:
    train = rows_file(tmp_path / "train.json", [f"what is {i}" for i in range(5)])
    bounded = data(train, min_difficulty=1.0, max_difficulty=2.0)
    assert bounded.rows_left_out == {"too_easy": 1, "too_hard": 2}
    with pytest.raises(SettingError, match=r"data\.difficulty_field='level' is no field"):
        data(train, max_difficulty=2.0, difficulty_field="level")
    with pytest.raises(SettingError, match=r"data\.min_difficulty=3.0 is above max_difficulty=2.0"):
        data(train, min_difficulty=3.0, max_difficulty=2.0)
    with pytest.raises(SettingError, match=r"data\.min_difficulty=nan is no number"):
        data(train, min_difficulty=float("nan"))
    with pytest.raises(SettingError, match=r"\(missing_difficulty: 2\); point data.difficulty_field"):
        data(rows_file(tmp_path / "none.json", ["a", "b"], difficulty=None), curriculum=RisingDifficulty())


def test_a_mixture_takes_what_its_sources_do_not_say_from_the_data(tmp_path: Path) -> None:
    easy = rows_file(tmp_path / "easy.json", [f"what is {i}" for i in range(6)])
    hard = rows_file(tmp_path / "hard.json", [f"what is 1 plus {i}" for i in range(6)] + ["what is 3"])
    sources = {"easy": {"path": easy, "weight": 3}, "hard": {"path": hard, "max_difficulty": 4.0}}
    settings: dict[str, Any] = {"tokenizer": tiny_tokenizer(), "prompts_per_batch": 4, "seed": 0, "path": None}
    mixed = PromptDataModule(**settings, min_difficulty=1.0, sources=sources)
    assert mixed.rows_left_out == {"too_easy": 2, "too_hard": 2}
    mixed.trainer = Trainer(accelerator="cpu", devices=1, logger=False, barebones=True)
    batch = next(iter(mixed.train_dataloader()))
    assert sorted(prompt.problem.key % 2 for prompt in batch.prompts) == [0, 0, 0, 1]
    assert ["plus" in prompt.problem.question for prompt in batch.prompts] == [
        prompt.problem.key % 2 == 1 for prompt in batch.prompts
    ]


@pytest.mark.parametrize(
    ("path", "sources", "message"),
    [
        ("demo", {"a": {"path": "demo"}}, r"data\.path=demo stands beside data\.sources=\['a'\]"),
        (None, {}, r"data\.path=null with data\.sources=\{\} names no data"),
        (None, {"a": {"weight": 1.0}}, r"data\.sources\.a\.path=null names no data"),
        (None, {"a": {"path": "demo", "wieght": 1.0}}, r"data\.sources\.a\.wieght=1.0 is not a setting; it has path,"),
        (None, {"a": {"path": "demo", "weight": 0.0}}, r"data\.sources\.a\.weight=0.0 is no share"),
        (None, {"a": {"path": "demo", "weight": float("inf")}}, r"data\.sources\.a\.weight=inf is no share"),
        (None, {"a": "demo"}, r"data\.sources\.a=demo has no settings; set data\.sources\.a\.path to it"),
        (None, {"a": {"path": "nowhere"}}, r"data\.sources\.a\.path='nowhere' names no source"),
    ],
)
def test_mixtures_that_cannot_work_are_refused(path: str | None, sources: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        PromptDataModule(tokenizer=tiny_tokenizer(), prompts_per_batch=4, seed=0, path=path, sources=sources)


def test_pass_rates_need_problems_that_come_again() -> None:
    with pytest.raises(SettingError, match=r"data\.curriculum=SampledByPassRate does nothing on data\.path=demo"):
        data("demo", curriculum=SampledByPassRate())
