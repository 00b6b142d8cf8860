"""Prints the modules with tensors among their globals that vLLM imports while it loads the demo model."""

import sys
from types import SimpleNamespace

import torch
from vllm_checks import start_engine

from ngrpo.modeling.loading import ModelSource


def with_tensors(names: set[str]) -> list[str]:
    """Returns the modules of these that have a tensor, or an object that holds one, among their globals."""
    found = []
    for name in names:
        values = list(vars(sys.modules[name]).values())
        held = [part for value in values if isinstance(value, SimpleNamespace) for part in vars(value).values()]
        if any(isinstance(value, torch.Tensor) for value in values + held):
            found.append(name)
    return sorted(found)


def main() -> None:
    """Loads the model with vLLM's own method wrapped, and prints what was new."""
    from vllm.v1.worker.cpu_worker import CPUWorker

    load = CPUWorker.load_model
    new: set[str] = set()

    def watched(worker, *args, **kwargs):
        before = set(sys.modules)
        load(worker, *args, **kwargs)
        new.update(set(sys.modules) - before)

    CPUWorker.load_model = watched
    start_engine(ModelSource(dtype="float32"), dtype="float32").close()
    print(f"new modules: {len(new) > 0}; with tensors: {with_tensors(new)}")


if __name__ == "__main__":
    main()
