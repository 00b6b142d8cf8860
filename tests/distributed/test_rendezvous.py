"""The store of a single machine's processes is not offered to other machines."""

import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from process_tree import listening
from torch.distributed import TCPStore

from ngrpo.distributed.rendezvous import Connected, on_loopback

NAMES = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", "LOCAL_RANK")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, "GLOO_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "")  # put back afterwards
        monkeypatch.delenv(name)


def trainer(nodes: int = 1, processes: int = 2, environment: Any = None) -> Any:
    strategy = SimpleNamespace(cluster_environment=environment or LightningEnvironment())
    return SimpleNamespace(num_nodes=nodes, world_size=processes, strategy=strategy)


def test_the_store_listens_on_the_loopback_alone() -> None:
    before = listening([os.getpid()])
    with on_loopback(trainer()):
        assert listening([os.getpid()]) - before <= {"0100007F"}
        store = TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)
        store.set("met", "yes")
        assert store.get("met") == b"yes"
        assert os.environ["MASTER_ADDR"] == "127.0.0.1"
        Connected().setup(None, None, "fit")
        assert "TORCHELASTIC_USE_AGENT_STORE" not in os.environ
    with socket.create_server(("", 0)):
        assert "00000000" in listening([os.getpid()])


@pytest.mark.parametrize(
    "made",
    [
        {"nodes": 2},
        {"processes": 1},
        {"environment": TorchElasticEnvironment.__new__(TorchElasticEnvironment)},
        {"LOCAL_RANK": "1"},
        {"MASTER_ADDR": "10.0.0.1"},
    ],
    ids=["two machines", "one process", "torchrun", "started already", "an address is given"],
)
def test_what_a_launcher_says_stays(made: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(made) & set(NAMES):
        monkeypatch.setenv(name, made.pop(name))
    before = dict(os.environ)
    with on_loopback(trainer(**made)):
        assert dict(os.environ) == before
