"""The README, CONTRIBUTING and the pages under docs/ as text."""

import os
import re
import subprocess
import sys

from forked import succeed
from places import ROOT

PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
}
"""Text by path."""


def commands(*pages: str) -> list[str]:
    """Returns every line of the bash blocks of some pages, of all by default, once."""
    texts = [PAGES[page] for page in pages or PAGES]
    blocks = [block for text in texts for block in re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)]
    return list(dict.fromkeys(line for block in blocks for line in block.splitlines() if line.strip()))


_started: set[str] = set()
"""Scripts that have been started as a user starts them."""


def execute(command: list[str], **environment: str) -> str:
    """Runs a command of a page in the repository with this Python, and returns what it prints.

    The first time a script is started as a user starts it, then as a fork of a process that has imported everything.
    """
    if command[0] == "python" and command[1] in _started:
        path = environment.pop("PYTHONPATH", "").split(":")
        return succeed(command[1].removeprefix("scripts/"), *command[2:], path=path, environment=environment)
    if command[1].startswith("scripts/"):
        _started.add(command[1])
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
