"""The Dockerfile and the SLURM job: linted, and their commands run with stand-ins for Docker and SLURM."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from places import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
JOB = ROOT / "examples/slurm/train.sbatch"
SCRIPTS = sorted([JOB, *(ROOT / "scripts").glob("*.sh")])


def tool(name: str) -> str:
    """Returns the path of a linter, which is installed beside Python."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_the_dockerfile_passes_its_linter():
    subprocess.run([tool("hadolint"), "Dockerfile"], cwd=ROOT, check=True)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_shell_script_passes_its_linter(script: Path):
    subprocess.run(["bash", "-n", str(script)], check=True)
    subprocess.run([tool("shellcheck"), "--shell", "bash", str(script)], check=True)


def test_the_images_run_as_an_ordinary_user_from_a_pinned_base_without_secrets():
    stages = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE, flags=re.DOTALL | re.MULTILINE))
    assert {"cpu", "gpu"} <= stages.keys()
    for name in ("cpu", "gpu"):
        assert re.findall(r"^USER (\S+)$", stages[name], flags=re.MULTILINE) == ["1000"]
        assert stages[name].index("USER") > stages[name].rindex("RUN")
        assert 'ENTRYPOINT ["ngrpo"]' in stages[name]
    assert re.search(r"^ARG PYTHON=\d+\.\d+\.\d+-slim-\w+$", DOCKERFILE, flags=re.MULTILINE)
    assert not re.search(r"token|password|secret", DOCKERFILE, flags=re.IGNORECASE)


def test_what_the_image_copies_builds_the_whole_wheel(tmp_path: Path):
    admitted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (.*)$", DOCKERFILE, flags=re.MULTILINE)]
    names = {name for group in copied for name in group}
    assert names == admitted
    source = tmp_path / "source"
    source.mkdir()
    for name in names:
        make = shutil.copy if (ROOT / name).is_file() else lambda a, b: shutil.copytree(a, b, symlinks=True)
        make(ROOT / name, source / name)
    (command,) = re.findall(r"^RUN (pip wheel .*)$", DOCKERFILE, flags=re.MULTILINE)
    words = command.replace("/wheels", str(tmp_path / "wheels")).split()
    subprocess.run([sys.executable, "-m", *words, "--no-build-isolation", "--no-index", "-q"], cwd=source, check=True)
    (wheel,) = (tmp_path / "wheels").iterdir()
    packaged = set(zipfile.ZipFile(wheel).namelist())
    for file in ("conf/train.yaml", "callbacks/rollout.py", "modeling/demo/model.safetensors", "py.typed"):
        assert f"ngrpo/{file}" in packaged or not (ROOT / "ngrpo" / file).exists()


SRUN = """#!/usr/bin/env bash
# Starts SLURM_NTASKS tasks here, passes SIGTERM and SIGUSR1 on to them, kills those that are left when one fails, and
# ends with the largest of their statuses.
[ "$1" = --kill-on-bad-exit=1 ] || exit 99
shift
tasks=()
for ((task = 0; task < SLURM_NTASKS; task++)); do
    SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NODEID=0 "$@" &
    tasks+=($!)
done
echo $$ > "$STAND_IN/srun.pid"
trap 'kill -TERM "${tasks[@]}"' TERM
trap 'kill -USR1 "${tasks[@]}"' USR1
status=0
while [ "${#tasks[@]}" -gt 0 ]; do
    wait -n -p ended "${tasks[@]}"; one=$?
    [ -n "${ended:-}" ] || continue  # a signal came
    left=()
    for task in "${tasks[@]}"; do [ "$task" = "$ended" ] || left+=("$task"); done
    tasks=("${left[@]}")
    [ "$one" -le "$status" ] || status=$one
    [ "$one" -eq 0 ] || [ "${#tasks[@]}" -eq 0 ] || kill -KILL "${tasks[@]}"
done
exit "$status"
"""


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """The environment of a job of two tasks on one node of a stand-in for SLURM, which trains the demo on CPUs."""
    programs = {
        "srun": SRUN,
        "scontrol": f'#!/usr/bin/env bash\necho "$@" >> {tmp_path}/scontrol.txt\n',
        "ngrpo": f'#!/usr/bin/env bash\nexec {sys.executable} -m ngrpo "$@"\n',
    }
    for name, text in programs.items():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "STAND_IN": str(tmp_path),
        "RUN_DIR": str(tmp_path / "run"),
        "SETTINGS": "debug=fast trainer.accelerator=cpu trainer.devices=2 reward.workers=1",
        "SLURM_JOB_ID": str(10_000 + os.getpid() % 50_000),
        "SLURM_JOB_NAME": "ngrpo",
        "SLURM_NNODES": "1",
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_NODELIST": "127.0.0.1",
    }


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_slurm_job_that_is_told_to_stop_saves_requeues_itself_and_resumes(
    number: signal.Signals, cluster: dict[str, str], tmp_path: Path
):
    settings = ["exploration=neighbor", "algo=grpo", "callbacks.checkpoint.every=1", "algo.prompts_per_batch=8"]
    job = subprocess.Popen(["bash", str(JOB), *settings, "trainer.iterations=500"], cwd=ROOT, env=cluster)
    run = tmp_path / "run"
    try:
        deadline = time.monotonic() + 200
        while not list(run.glob("checkpoints/iteration-*")) and job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        os.kill(int((tmp_path / "srun.pid").read_text()), number)
        assert job.wait(timeout=120) == 128 + number
    finally:
        job.kill()
    assert (tmp_path / "scontrol.txt").read_text() == f"requeue {cluster['SLURM_JOB_ID']}\n"
    saved = max(int(folder.name.removeprefix("iteration-")) for folder in run.glob("checkpoints/iteration-*"))
    again = ["bash", str(JOB), *settings, f"trainer.iterations={saved + 1}"]
    subprocess.run(again, cwd=ROOT, env=cluster, check=True, timeout=240)
    assert f'"iterations": {saved + 1}' in (run / "summary.json").read_text()
    assert (tmp_path / "scontrol.txt").read_text().count("requeue") == 1
