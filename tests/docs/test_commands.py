"""Every command of the README and the documentation is run, most of them cut short."""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from places import ROOT
from prose import commands, execute
from stand_in import stand_in_judge

from ngrpo.data.word_problems.generator import problem

SHORT = ["debug=fast", "trainer.iterations=1"]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short finished run, which RUN stands for."""
    folder = tmp_path_factory.mktemp("readme") / "run"
    execute(["python", "scripts/train.py", "exploration=neighbor", "algo=gspo", *SHORT, f"hydra.run.dir={folder}"])
    return folder


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


def report(words: list[str], folder: Path) -> None:
    """OTHER is a second run: the first, copied."""
    if "OTHER" not in words:
        execute(words)
        return
    at = words.index("OTHER")
    shutil.copytree(words[at - 1], folder / "other")
    execute([*words[:at], str(folder / "other"), "--out", str(folder / words[-1])])
    assert (folder / words[-1]).exists()


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
    for excluded in ("missing_answer", "duplicate", "in_evaluation"):
        assert re.search(rf"excluded: {excluded} +│ 1 ", printed)
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
    """On the page ``latest`` follows an earlier run; here that run is a copy of the short one."""
    shutil.copytree(run, folder)
    words = [w for w in words if not w.startswith("trainer.iterations=")]
    execute([*words, "debug=fast", f"hydra.run.dir={folder}"])
    assert '"iterations": 2' in (folder / "summary.json").read_text()


def demo(words: list[str], folder: Path) -> None:
    """With the environment of the tests in place of a fresh one."""
    execute([*words, *SHORT, f"hydra.run.dir={folder}"], VENV=sys.prefix)
    assert (folder / "summary.json").exists()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reward model that a page makes in outputs/."""
    folder = tmp_path_factory.mktemp("reward") / "classifier"
    assert "reward model in" in execute(["python", "examples/make_reward_model.py", str(folder)])
    return folder


def train_with_judge(words: list[str], folder: Path) -> None:
    """With the stand-in of the examples at a free port."""
    with stand_in_judge() as port:
        train([word.replace("8123", port) for word in words], folder, no_proxy="127.0.0.1")


@pytest.mark.parametrize("command", commands())
def test_command(command: str, run_folder: Path, classifier: Path, tmp_path: Path) -> None:
    words = shlex.split(command)
    environment = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    words = [w.replace("RUN", str(run_folder)) if w.startswith(("model.path=RUN", "RUN")) else w for w in words]
    words = [w.replace("outputs/classifier", str(classifier)) for w in words]
    folder = tmp_path / "run"
    elsewhere = {
        "source .venv/bin/activate": "of the shell that it is typed in",
        'python -m pytest -m "not slow and not vllm and not gpu and not faults and not browser" -n 2 --dist loadfile': (
            "continuous integration runs it"
        ),
        "mkdocs build --strict": "tests/docs/test_site.py runs it",
        "python -m pytest -m gpu": "needs a GPU",
        'python -m pytest -m "gpu or vllm"': "needs a GPU",
        "bash scripts/test.sh": "continuous integration runs it, and these tests with it",
        "python -m pytest -m faults -n 2 --dist worksteal": "continuous integration runs it",
        "tensorboard --logdir outputs": "a server; tests/runs/test_training.py reads the event files",
        "python examples/make_reward_model.py outputs/classifier": "the fixture classifier runs it",
        "python examples/stand_in_judge.py 8123": "a server; train_with_judge runs it",
        'ngrpo sample demo "Tom has 3 apples and buys 4 more. How many?" exploration=neighbor n=4': (
            "tests/entrypoints/test_sample_command.py runs it"
        ),
        "ngrpo init mine": "tests/architecture/test_wheel.py runs it, and the next",
        "ngrpo train --config-dir mine experiment=mine trainer.iterations=5": "test_wheel.py runs it",
        "bash scripts/setup_vllm_cpu.sh": "continuous integration runs it",
        "bash scripts/setup.sh": "scripts/test.sh runs it, and continuous integration that",
        '.venv-vllm/bin/python -m pytest -m "vllm and not slow"': "continuous integration runs it",
        "python scripts/study.py all --study demo --jobs 4": "needs a GPU",
        "python scripts/study.py all --quick --jobs 2": "tests/study/test_study_command.py runs it",
        "python scripts/study.py leaderboard --leaderboard docs/results": (
            "tests/study/leaderboard/test_leaderboard_page.py makes it from files"
        ),
        "python scripts/make_demo_model.py --size countdown --output outputs/study/countdown-model": "takes minutes",
        "python scripts/study.py levels --study countdown": "needs the model",
        "python scripts/study.py model --study smollm2_long": "needs a GPU",
        "python scripts/study.py levels --study smollm2_long": "needs a GPU",
        "python scripts/study.py restore --study countdown": "tests/study/leaderboard/test_restoring.py runs it",
        "python scripts/study.py run --study countdown --jobs 16": "needs a GPU",
        "python scripts/study.py add --study countdown --arm min_p_grpo --with exploration=min_p --with algo=grpo "
        "--seeds 5": "needs a GPU; tests/study/leaderboard/test_rerun_arm.py runs it smaller",
        "python scripts/study.py plan --setting r1_distill_1_5b --card H200 --price 3": (
            "reads the hub; tests/study/test_scale_plan.py runs it with a folder"
        ),
        "ngrpo serve Qwen/Qwen2.5-1.5B-Instruct exploration=neighbor rollout.max_new_tokens=1024 "
        "data.max_prompt_tokens=512": "reads the hub; tests/plugins/test_verl_rollouts.py serves a small model",
        "python scripts/make_demo_model.py --size large --workers 12 --output outputs/study/demo-model": "needs a GPU",
    }
    if command in commands("docs/serving.md"):
        pytest.skip("tests/docs/test_serving_page.py runs it")
    if command in commands("docs/extending.md"):
        pytest.skip("tests/docs/test_extensions.py runs it")
    if "bench" in command:
        pytest.skip("needs a GPU; tests/docs/test_benchmarks.py runs it smaller")
    if words[0] in ("docker", "sbatch"):
        pytest.skip("needs Docker, or SLURM; tests/docs/test_deployment.py runs the parts with stand-ins")
    if words[0] == "pip" or "trainer=gpu" in words or "rollout=vllm" in words:
        pytest.skip("needs a GPU; tests/rollout/vllm/ runs vLLM's CPU build")
    if words[0] in ("torchrun", "srun"):
        pytest.skip("needs two machines; tests/runs/test_two_nodes.py starts two launchers on one")
    if command in elsewhere:
        pytest.skip(elsewhere[command])
    handlers: dict[str, Callable[[], object]] = {
        "scripts/demo.sh": lambda: demo(words, folder),
        "tests/exploration/test_token.py": lambda: execute(words),
        "scripts/neighbors.py": lambda: execute(words),
        "scripts/explore_embedding.py": lambda: execute([*words[:-1], str(folder), "--samples", "5"]),
        "scripts/report.py": lambda: report(words, folder),
        "scripts/list_methods.py": lambda: execute(words),
        "scripts/study.py": lambda: execute([*words[:-1], str(folder)]),
        "scripts/verify.py": lambda: execute(words),
        "scripts/plan.py": lambda: execute(words),
        "scripts/inspect_data.py": lambda: inspect_data(words, folder),
        "data=mixture": lambda: train_on_mixture(words, folder),
        "scripts/check_replay.py": lambda: check_replay(words),
        "scripts/export.py": lambda: execute([*words[:-1], str(tmp_path / words[-1])]),
        "scripts/evaluate.py": lambda: evaluate(words, folder),
        "scripts/compare.py": lambda: compare(words, folder),
        "reward=llm_judge": lambda: train_with_judge(words, folder),
        "--help": lambda: execute(words),
        "ckpt=latest": lambda: resume(words, run_folder, folder),
        "--cfg": lambda: execute(words),
        "model.path=MODEL": lambda: train_on_own_files(words, folder),
        "scripts/train.py": lambda: train(words, folder, **environment),
    }
    next(handler for key, handler in handlers.items() if key in words)()
