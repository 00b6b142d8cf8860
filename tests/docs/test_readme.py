"""Every command of the README is run, most of them cut short; what the README quotes is what the files say."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from places import ROOT

from ngrpo.data.word_problems.problems import problem
from ngrpo.study.results import load
from ngrpo.study.summary import late

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.strip()]
SHORT = ["debug=fast", "trainer.iterations=1"]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short finished run, which the README's RUN stands for."""
    folder = tmp_path_factory.mktemp("readme") / "run"
    execute(["python", "scripts/train.py", "exploration=neighbor", "algo=gspo", *SHORT, f"hydra.run.dir={folder}"])
    return folder


def execute(command: list[str], **environment: str) -> str:
    command = [sys.executable if word == "python" else word for word in command]
    python_path = f"{ROOT}:{environment.pop('PYTHONPATH', '')}"
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": python_path, "OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def train(words: list[str], folder: Path, **environment: str) -> None:
    two = ["algo.prompts_per_batch=8"] if "trainer.devices=2" in words else []
    few = ["benchmark.demo.problems=4", "callbacks.evaluation.every=1"] if "benchmark=[demo]" in words else []
    execute([*words, *SHORT, *two, *few, f"hydra.run.dir={folder}"], **environment)
    assert (folder / "summary.json").exists()


def train_on_own_files(words: list[str], folder: Path) -> None:
    """MODEL and DATA.json are the demo model in a folder of its own, and a file in DeepScaleR's format."""
    data = folder / "data.json"
    data.parent.mkdir()
    data.write_text('[{"problem": "What is 2 + 2?", "answer": 4.0}, {"problem": "lost", "answer": null}]')
    named = {
        "model.path=MODEL": f"model.path={ROOT / 'ngrpo/modeling/demo'}",
        "data.path=DATA.json": f"data.path={data}",
    }
    words = [named.get(word, word) for word in words]
    execute([*words, "data.max_prompt_tokens=200", f"hydra.run.dir={folder / 'run'}"])
    assert '"missing_answer": 1' in (folder / "run" / "summary.json").read_text()


def inspect_data(words: list[str], folder: Path) -> None:
    """The evaluation data repeats the only usable problem, and a second one is left."""
    folder.mkdir()
    rows = [{"problem": f"What is {i} + 2?", "answer": str(i + 2), "difficulty": i} for i in (1, 1, 2, 3)]
    (folder / "data.json").write_text(json.dumps([*rows, {"problem": "lost", "answer": None}]))
    (folder / "test.json").write_text(json.dumps(rows[-1:]))
    for name, path in (
        ("MODEL", ROOT / "ngrpo/modeling/demo"),
        ("DATA.json", folder / "data.json"),
        ("TEST.json", folder / "test.json"),
    ):
        words = [word.replace(f"={name}", f"={path}") for word in words]
    printed = execute(words)
    for left_out in ("missing_answer", "duplicate", "in_evaluation"):
        assert re.search(rf"left out: {left_out} +│ 1 ", printed)
    (found,) = json.loads(execute([*words, "--json"]))["sources"].values()
    assert (found["rows"], found["usable"], len(found["duplicates"]), len(found["overlap"])) == (5, 2, 1, 1)


def train_on_mixture(words: list[str], folder: Path) -> None:
    """EASY.json and HARD.json are some of the demo's problems."""
    folder.mkdir()
    problems = [problem(key, "train") for key in range(40)]
    for name, part in (("EASY", problems[:20]), ("HARD", problems[20:])):
        rows = [{"problem": p.question, "answer": p.answer, "difficulty": p.difficulty + 2} for p in part]
        (folder / f"{name}.json").write_text(json.dumps(rows))
        words = [word.replace(f"{name}.json", str(folder / f"{name}.json")) for word in words]
    execute([*words, *SHORT, "data.curriculum.first=5", f"hydra.run.dir={folder / 'run'}"])
    too_easy = sum(p.difficulty == 1 for p in problems[20:])
    assert f'"too_easy": {too_easy}' in (folder / "run" / "summary.json").read_text()


def check_replay(words: list[str]) -> None:
    """MODEL is the demo model; the engines agree."""
    words = [str(ROOT / "ngrpo/modeling/demo") if word == "MODEL" else word for word in words]
    assert "'mixed'" in execute([*words, "--requests", "2", "--prompt", "8", "--tokens", "16"])


def evaluate(words: list[str], folder: Path) -> None:
    """A few problems each; benchmarks of the hub are files with the same fields."""
    file = folder.with_suffix(".json")
    wrong = {f"Incorrect Answer {i}": str(i) for i in (1, 2, 3)}
    file.write_text(json.dumps([{"problem": "2 + 2?", "answer": 4} | {"Question": "?", "Correct Answer": "4"} | wrong]))
    chosen = next((w for w in words if w.startswith("benchmark=")), "benchmark=[demo]")
    names = chosen.removeprefix("benchmark=").strip("[]").split(",")
    sources = [f"benchmark.{name}.path={file}" for name in names if name != "demo"]
    limits = ["benchmark.demo.problems=4"] if "demo" in names else []
    words = [f"model.path={ROOT / 'ngrpo/modeling/demo'}" if word == "model.path=MODEL" else word for word in words]
    short = ["n=2", "rollout.max_new_tokens=16", "data.max_prompt_tokens=128"]
    execute([*words, *sources, *limits, *short, f"out={folder}"])
    assert set(json.loads((folder / "evaluation.json").read_text())["benchmarks"]) == set(names)


def compare(words: list[str], folder: Path) -> None:
    """Of two small evaluations."""
    runs = [str(folder.with_name(word.replace("/", "-"))) for word in words if word.startswith("outputs/")]
    for seed, run in enumerate(runs):
        execute(["python", "scripts/evaluate.py", "n=2", "benchmark.demo.problems=2", f"seed={seed}", f"out={run}"])
    assert "pass@2" in execute([*words[: -len(runs)], *runs])


def resume(words: list[str], run: Path, folder: Path) -> None:
    """In the README ``latest`` follows an earlier run; here that run is a copy of the short one."""
    shutil.copytree(run, folder)
    words = [w for w in words if not w.startswith("trainer.iterations=")]
    execute([*words, "debug=fast", f"hydra.run.dir={folder}"])
    assert '"iterations": 2' in (folder / "summary.json").read_text()


def demo(words: list[str], folder: Path) -> None:
    """With the environment of the tests in place of a fresh one."""
    execute([*words, *SHORT, f"hydra.run.dir={folder}"], VENV=sys.prefix)
    assert (folder / "summary.json").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command: str, run_folder: Path, tmp_path: Path) -> None:
    words = shlex.split(command)
    environment = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    words = [w.replace("RUN", str(run_folder)) if w.startswith(("model.path=RUN", "RUN")) else w for w in words]
    folder = tmp_path / "run"
    elsewhere = {
        "bash scripts/test.sh": "continuous integration runs it, and these tests with it",
        "python -m pytest -m faults -n 2 --dist worksteal": "continuous integration runs it",
        "tensorboard --logdir outputs": "a server; tests/test_training.py reads the event files",
        "bash scripts/setup_vllm_cpu.sh": "continuous integration runs it",
        '.venv-vllm/bin/python -m pytest -m "vllm and not slow"': "continuous integration runs it",
        "python scripts/study.py all --study demo --jobs 4": "needs a GPU",
        "python scripts/study.py all --quick --jobs 2": "tests/study/test_script.py runs it",
        "python scripts/make_demo_model.py --size large --workers 12 --output outputs/study/demo-model": "needs a GPU",
    }
    if "bench" in command:
        pytest.skip("needs a GPU; tests/test_benchmarks.py runs it smaller")
    if words[0] in ("torchrun", "srun"):
        pytest.skip("needs two machines; tests/test_two_nodes.py starts two launchers on one")
    if command in elsewhere:
        pytest.skip(elsewhere[command])
    handlers: dict[str, Callable[[], object]] = {
        "scripts/demo.sh": lambda: demo(words, folder),
        "scripts/neighbors.py": lambda: execute(words),
        "scripts/explore_embedding.py": lambda: execute([*words[:-1], str(folder), "--samples", "5"]),
        "scripts/report.py": lambda: execute(words),
        "scripts/list_methods.py": lambda: execute(words),
        "scripts/study.py": lambda: execute([*words[:-1], str(folder)]),
        "scripts/verify.py": lambda: execute(words),
        "scripts/inspect_data.py": lambda: inspect_data(words, folder),
        "data=mixture": lambda: train_on_mixture(words, folder),
        "scripts/check_replay.py": lambda: check_replay(words),
        "scripts/export.py": lambda: execute([*words[:-1], str(tmp_path / words[-1])]),
        "scripts/evaluate.py": lambda: evaluate(words, folder),
        "scripts/compare.py": lambda: compare(words, folder),
        "--help": lambda: execute(words),
        "ckpt=latest": lambda: resume(words, run_folder, folder),
        "--cfg": lambda: execute(words),
        "model.path=MODEL": lambda: train_on_own_files(words, folder),
        "scripts/train.py": lambda: train(words, folder, **environment),
    }
    next(handler for key, handler in handlers.items() if key in words)()


def test_the_strategy_shown_is_the_file() -> None:
    shown = re.search(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert shown is not None
    file = (ROOT / "examples/blend_top_two.py").read_text()
    assert shown.group(1) == file
    assert len(file.splitlines()) <= 40


def test_the_neighbours_shown_are_the_models() -> None:
    printed = execute(["python", "scripts/neighbors.py", "seven", "finds", "apples"])
    rows = re.findall(r"^\| (seven|finds|apples) \| (.*) \|$", README, flags=re.MULTILINE)
    assert len(rows) == 3
    for word, nearest in rows:
        assert any(word in line and nearest in line for line in printed.splitlines())


def test_the_tables_are_those_of_the_script() -> None:
    tables = execute(["python", "scripts/list_methods.py", "--markdown"]).strip().split("\n\n")
    assert len(tables) == 2
    for table in tables:
        assert f"\n\n{table}\n\n" in README, "paste the output of scripts/list_methods.py --markdown into the README"


def test_every_choice_is_in_its_table() -> None:
    for group, heading in (
        ("selection", "selection="),
        ("reward_terms", "reward_terms=[...]"),
        ("data", "data="),
        ("data/curriculum", "data/curriculum="),
    ):
        names = {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}
        table = README.split(f"| `{heading}` |")[1].split("\n\n")[0]
        assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == names


def benchmark(name: str) -> dict[str, Any]:
    """Returns what a benchmark wrote on a GPU."""
    return json.loads((ROOT / "docs/benchmarks" / f"{name}.json").read_text())


def quoted(first: str) -> list[str]:
    """Returns the cells after the first of the README's row that begins with it."""
    (row,) = re.findall(rf"^\| {re.escape(first)} \| (.*) \|$", README, flags=re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]


@pytest.mark.parametrize(
    ("file", "first"),
    [
        ("update_h100", "H100 80GB"),
        ("update_h200", "H200"),
        ("update_h200_12288", "H200, larger passes"),
        ("update_2xh200", "two H200, FSDP2"),
        ("update_2xh200_once", "two H200, gathering once"),
    ],
)
def test_the_updates_quoted_were_measured(file: str, first: str) -> None:
    made = benchmark(file)
    (run,), (result,) = made["runs"], made["results"]
    sequences, *cells = quoted(first)
    assert sequences.split()[-1] == str(run["lengths"][0])
    expected = [f"{run['microbatch_tokens']:,}", f"{result['tokens_per_s']:,.0f}", f"{result['mfu_percent']:.1f} %"]
    expected += [f"{result['beyond_gib']:.1f} GiB"]
    expected += [f"{result['loss']:.5f}", f"{result['grad_norm']:.4f}"] if "loss" in result else ["", ""]
    assert cells == expected


def test_two_cards_are_as_fast_as_quoted() -> None:
    names = ("update_h200_12288", "update_2xh200", "update_2xh200_once")
    one, each, once = (benchmark(name)["results"][0] for name in names)
    text = " ".join(README.split())
    assert f"Two cards are {each['tokens_per_s'] / one['tokens_per_s']:.2f} times as fast as one that makes" in text
    assert f"they are {once['tokens_per_s'] / one['tokens_per_s']:.2f} times as fast." in text
    assert benchmark(names[2])["runs"][0]["gather_once"]
    for two in (each, once):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-3)
        assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)


def test_the_memory_quoted_was_measured() -> None:
    made = benchmark("memory_h200")
    for run, result in zip(made["runs"], made["results"], strict=True):
        assert run["checkpointing"] == "full"
        assert quoted(f"{run['microbatch_tokens']:,}") == [f"{result['beyond_gib']:.1f} GiB"]


def test_the_iterations_quoted_were_measured() -> None:
    text = " ".join(README.split())
    for card in ("H100", "H200"):
        made = benchmark(f"step_{card.lower()}")
        for mode, first in (("ours bf16", "ours"), ("trl liger", "TRL + Liger")):
            result = made["results"][mode]
            seconds = [f"{result[name]:.2f} s" for name in ("step_s", "generate_s", "score_s", "update_s")]
            cells = quoted(f"{first}, {card}")
            assert [*cells[:4], cells[-1]] == [*seconds, f"{result['used_gib']:.1f} GiB"]
        assert f"{made['speed_up']['ours bf16']:.2f} times as fast on the {card}" in text
    whole = benchmark("n_grpo_1_5b_h200")["results"]["ours"]
    assert f"at most {whole['used_gib']:.1f} GiB in use" in text
    assert f"it took {whole['step_s']:.1f} s" in text


def rows_of(table: str) -> dict[tuple[str, str], str]:
    """Returns the cells of a markdown table by first cell and heading."""
    heads, _, *rows = ([cell.strip() for cell in line.strip("| ").split("|")] for line in table.strip().splitlines())
    return {(row[0], head): cell for row in rows for head, cell in zip(heads[1:], row[1:], strict=False)}


@pytest.mark.parametrize("name", [folder.name for folder in (ROOT / "docs/study").iterdir()])
def test_the_studies_quoted_are_those_of_the_stored_runs(name: str, tmp_path: Path) -> None:
    folder = ROOT / "docs/study" / name
    execute(["python", "scripts/study.py", "report", "--results", str(folder / "results.json"), "--to", str(tmp_path)])
    made = (tmp_path / f"{name}.md").read_text()
    assert made == (folder / f"{name}.md").read_text()
    assert (tmp_path / f"{name}.png").stat().st_size > 0
    stored: dict[tuple[str, str], str] = {}
    for table in made.split("\n\n")[1:]:
        stored |= rows_of(table)
    (section,) = (part for part in README.split("\n### ") if f"docs/study/{name}/{name}.png" in part)
    quoted_cells: dict[tuple[str, str], str] = {}
    for table in section.split("\n\n"):
        quoted_cells |= rows_of(table) if table.startswith(("| arm |", "| pair |")) else {}
    assert len({first for first, _ in quoted_cells}) == 12 + 2
    assert {"mean@1", "vector alone: answer"} <= {head for _, head in quoted_cells}
    assert {key: cell for key, cell in quoted_cells.items() if stored.get(key, "") != cell} == {}


def test_the_validation_figures_quoted_are_those_of_the_stored_runs() -> None:
    tuned = load(ROOT / "docs/study/smollm2/results.json").tuned
    plain, gumbel = (
        next(one.metrics for one in tuned[arm].tried if one.rate == rate)
        for arm, rate in (("token_grpo", 3e-6), ("gumbel_grpo", 1e-5))
    )
    text = " ".join(README.split())
    ours, theirs = (
        [f"{metrics[name]:.3f}" for name in ("mean@16", "pass@8", "pass@16")] for metrics in (plain, gumbel)
    )
    assert f"a Mean@16 of {ours[0]}, a Pass@8 of {ours[1]} and a Pass@16 of {ours[2]}" in text
    assert f"Gumbel mixing at 1e-5 had {theirs[0]}, {theirs[1]} and {theirs[2]}." in text


def test_the_ways_quoted_of_arms_that_do_not_learn_are_those_of_the_stored_runs() -> None:
    results = load(ROOT / "docs/study/demo/results.json")
    ways, gaussian = (
        mean([late(run)["late/train/distinct_paths"] for run in results.of_arm(arm)])
        for arm in ("neighbor_no_gate_grpo", "gaussian_grpo")
    )
    text = " ".join(README.split())
    assert f"({ways:.2f} paths a group at the end), with Gaussian noise few do ({gaussian:.2f})" in text
