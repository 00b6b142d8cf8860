"""The loading of a weight transfer on a worker, recorded so that its end can be checked."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ngrpo.rollout.vllm.checksum import named_checksums
from ngrpo.rollout.vllm.coverage import mark, unwritten
from ngrpo.rollout.vllm.read_tensors import ReadTensors

_SHOWN = 3


class CheckedModel:
    """A worker's served model, which vLLM's weight-transfer engines load into through this.

    Args:
        model: the model, as it was loaded from its folder.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = model
        self._received: dict[str, list[int]] = {}
        self._unread: set[str] = set()
        self._buffers = self._served_buffers()

    def expect(self) -> None:
        """Marks all parameters, before weights come; what they held is lost."""
        self._received = {}
        self._unread = set()
        mark(self.model)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> Any:
        """Loads tensors by their transformers names."""
        bucket = list(weights)
        for name, value in named_checksums(bucket):
            self._received.setdefault(name, []).append(value)
        with torch.no_grad(), ReadTensors(dict(bucket)) as read:
            loaded = self.model.load_weights(iter(bucket))
        self._unread |= read.unread
        return loaded

    def fault(self, sent: dict[str, int]) -> str:
        """Returns a clause that says what is wrong after a transfer of tensors with these checksums, "" if nothing.

        Each tensor must have come once and bit for bit, every element of a parameter must have been written since
        `expect`, and the buffers of the model's folder, which no transfer brings, must be as they were loaded.
        """
        expected = {name: [value] for name, value in sent.items()}
        names = expected.keys() | self._received.keys()
        if wrong := sorted(name for name in names if expected.get(name) != self._received.get(name)):
            return f"vLLM received other weights than were sent: {listed(wrong)}"
        if missing := unwritten(self.model):
            return f"vLLM serves parameters that no weights came for: {listed(missing)}"
        buffers = self._served_buffers()
        if changed := sorted(name for name in self._buffers if buffers.get(name) != self._buffers[name]):
            return f"vLLM serves buffers that changed since it loaded them: {listed(changed)}"
        return ""

    def unread(self) -> list[str]:
        """Returns the names of the tensors that came since `expect` and of which the model loaded nothing.

        It passes over names that it has no place for, such as a bias that its implementation lacks, in silence.
        """
        return sorted(self._unread)

    def served(self) -> dict[str, int]:
        """Returns the checksums of all parameters and of the buffers of the model's folder, by vLLM's name."""
        return dict(named_checksums(self.model.named_parameters())) | self._served_buffers()

    def _served_buffers(self) -> dict[str, int]:
        saved = self.model.state_dict().keys()
        return dict(named_checksums((name, buffer) for name, buffer in self.model.named_buffers() if name in saved))


def listed(names: list[str]) -> str:
    """Returns the first names, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
