"""Rendezvous of the training processes of one machine on its loopback, which no other machine reaches."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch.distributed import TCPStore  # type: ignore[attr-defined]

_HOST = "127.0.0.1"
_LOOPBACK = "lo"
_SERVED = "TORCHELASTIC_USE_AGENT_STORE"
"""PyTorch's switch for a store that is there already; without it the first process opens one on every interface."""

_serving: list[TCPStore] = []
"""Kept while the process lives: the others may end after the training of this one."""


@contextmanager
def on_loopback(trainer: Trainer) -> Iterator[None]:
    """Serves the store for the processes that Lightning starts meanwhile; those that a launcher started have theirs."""
    if not _starts_processes_here(trainer):
        yield
        return
    listening = socket.create_server((_HOST, 0))
    port = listening.getsockname()[1]
    _serving.append(TCPStore(_HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()))
    os.environ |= {"MASTER_ADDR": _HOST, "MASTER_PORT": str(port), _SERVED: "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    if _LOOPBACK in (name for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)
    try:
        yield
    finally:
        os.environ.pop(_SERVED, None)


class Connected(Callback):
    """Takes the switch back once the processes have met: the stores that engines open are their own."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Runs when the process group is there."""
        os.environ.pop(_SERVED, None)


def _starts_processes_here(trainer: Trainer) -> bool:
    environment = getattr(trainer.strategy, "cluster_environment", None)
    return (
        trainer.num_nodes == 1
        and trainer.world_size > 1
        and isinstance(environment, LightningEnvironment)
        and not environment.creates_processes_externally
        and "MASTER_ADDR" not in os.environ
    )
