"""The phases that the serving benchmark tells are those of the stream that the server used."""

import asyncio
import importlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from places import ROOT


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")


class SlowStream:
    """Takes 20 ms to add, 50 ms to wait and 10 ms to hand out."""

    unfinished = 3

    def add(self, requests: Sequence[str], watched: bool = False) -> None:
        time.sleep(0.02)

    def wait(self) -> list[int]:
        time.sleep(0.05)
        return [0, 1]

    def rollouts(self, numbers: Sequence[int]) -> list[str]:
        time.sleep(0.01)
        return [f"rollout {number}" for number in numbers]


class SlowEngine:
    @contextmanager
    def serving_stream(self, sampling: str, bound: str, plain: bool) -> Iterator[SlowStream]:
        assert (sampling, bound, plain) == ("sampling", "bound", True)
        yield SlowStream()


def test_a_watched_stream_does_what_it_did_and_its_phases_are_told(scripts: None) -> None:
    engine: Any = SlowEngine()
    watch = importlib.import_module("serving_phases").EngineWatch(engine)
    start = time.perf_counter()
    with engine.serving_stream("sampling", "bound", True) as stream:
        stream.add(["a", "b"], watched=True)
        assert stream.wait() == [0, 1]
        stream.add(["c"])
        assert stream.unfinished == 3
        stream.wait()
        assert stream.rollouts([0, 1]) == ["rollout 0", "rollout 1"]
    phases = watch.since(start)
    assert phases["added_before_first_step"] == 2
    assert 0.04 <= phases["adding_s"] < phases["last_added_s"]
    assert phases["first_added_s"] + 0.02 <= phases["first_step_s"]
    assert phases["first_step_s"] + 0.07 <= phases["last_added_s"] <= phases["last_step_s"] - 0.05
    assert phases["stepping_s"] >= 0.1
    assert 0.01 <= phases["handing_out_s"] <= phases["last_handed_out_s"] - phases["last_step_s"] + 1e-3
    watch.forget()
    assert watch.since(start) == {"rounds": []}


@pytest.mark.parametrize("answers", [2, 3])
def test_clients_tell_when_they_had_sent(scripts: None, answers: int) -> None:
    ask_all = importlib.import_module("serving_clients").ask_all

    async def asked() -> Any:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(answers):
                await reader.readuntil(b"{}")
                await asyncio.sleep(0.02)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await ask_all(f"http://127.0.0.1:{port}", [[b"{}"] * answers] * 2)

    made = asyncio.run(asked())
    assert made.answers == [(200, b"[]")] * 2 * answers
    assert 0 < made.times["sent_s"] < made.times["seconds"] - 0.02 * answers
    assert 0.02 <= made.times["first_answer_s"] <= made.times["seconds"] - 0.02 * (answers - 1)
