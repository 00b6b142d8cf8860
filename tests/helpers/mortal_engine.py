"""An engine with a process of its own that is killed at chosen moments: a stand-in for vLLM's, in PyTorch."""

import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Rollout


class MortalEngine(TorchEngine):
    """The torch engine, which does nothing any more once the process that it starts has died.

    Args:
        model: where the weights come from.
        deaths: moments at which the process is killed: in the middle of the n-th call (from 1) of a method, by the
            method's name; or before it, by ``before_`` and the name.
        options: of the torch engine.
    """

    def __init__(self, model: ModelSource, deaths: Mapping[str, Sequence[int]], **options: Any) -> None:
        super().__init__(model, **options)
        self.deaths = {name: list(calls) for name, calls in deaths.items()}
        self.calls: Counter[str] = Counter()
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, device: torch.device) -> None:
        self.calls["start"] += 1
        self.processes.append(subprocess.Popen(["sleep", "600"]))
        super().start(device)
        self._strike("start")

    def generate(self, *arguments: Any) -> list[Rollout]:
        self._use("generate")
        made = super().generate(*arguments)
        self._strike("generate")
        return made

    def sync_weights(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        self._use("transfer")
        super().sync_weights(self._sent(tensors))

    def sync_loaded(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        self._use("transfer")
        super().sync_loaded(self._sent(tensors))

    def embedding(self) -> Tensor:
        self._use("embedding")
        return super().embedding()

    def sleep(self) -> None:
        self._use("sleep")
        super().sleep()

    def wake(self) -> None:
        self._use("wake")
        super().wake()

    def close(self) -> None:
        super().close()
        for process in self.processes:
            process.kill()
            process.wait()

    def left(self) -> list[int]:
        """The processes that are still there."""
        return [process.pid for process in self.processes if process.returncode is None]

    def _sent(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Dies with the first tensor taken and the others not."""
        for number, sent in enumerate(tensors):
            if number == 1:
                self._strike("transfer")
            yield sent

    def _use(self, method: str) -> None:
        self.calls[method] += 1
        self._strike(method, f"before_{method}")

    def _strike(self, method: str, moment: str = "") -> None:
        """Kills the process if now is a moment to; raises if it is dead."""
        process = self.processes[-1]
        if self.calls[method] in self.deaths.get(moment or method, ()):
            process.send_signal(signal.SIGKILL)
            process.wait()
        if process.poll() is not None:
            raise RuntimeError("an engine process has died")
