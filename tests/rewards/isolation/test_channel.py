"""Messages over a pair of sockets: whole, in time, or not at all."""

import math
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from ngrpo.rewards.isolation.channel import Channel


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), theirs


@pytest.mark.parametrize("size", [0, 1, 7, 2**16 - 8, 2**16, 3 * 2**20 + 1])
def test_a_message_of_any_size_arrives_whole(ends: tuple[Channel, socket.socket], size: int) -> None:
    channel, theirs = ends
    message = bytes(number % 251 for number in range(size))
    sender = threading.Thread(target=Channel(theirs).send, args=(message,))
    sender.start()
    assert channel.receive(time.monotonic() + 30) == message
    sender.join()


@pytest.mark.parametrize("part", [b"", b"\0\0\0", struct.pack("!Q", 9) + b"12345678"])
def test_a_message_that_stops_in_the_middle_is_waited_for_no_longer(
    ends: tuple[Channel, socket.socket], part: bytes
) -> None:
    channel, theirs = ends
    theirs.sendall(part)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        channel.receive(start + 0.2)
    assert 0.2 <= time.monotonic() - start < 2
    theirs.close()
    with pytest.raises(EOFError):
        channel.receive()


def test_a_deadline_in_the_past_is_a_timeout(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.sendall(struct.pack("!Q", 0))
    with pytest.raises(TimeoutError):
        channel.receive(time.monotonic())
    assert channel.receive(math.inf) == b""


def test_a_peer_that_does_not_read_is_waited_for_no_longer(ends: tuple[Channel, socket.socket]) -> None:
    channel, _ = ends
    with pytest.raises(TimeoutError):
        channel.send(bytes(2**24), time.monotonic() + 0.2)


def test_a_peer_that_is_gone_is_the_end(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.close()
    with pytest.raises(EOFError):
        channel.send(b"1")
    with pytest.raises(EOFError):
        channel.receive()
    channel.close()
    with pytest.raises(EOFError):
        channel.receive()
