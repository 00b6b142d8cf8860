"""The stand-in judge of the examples, running at a free port."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from places import ROOT


@contextmanager
def stand_in_judge() -> Iterator[str]:
    """Yields its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = subprocess.Popen([sys.executable, str(ROOT / "examples/stand_in_judge.py"), port])
    try:
        while server.poll() is None and socket.socket().connect_ex(("127.0.0.1", int(port))):
            time.sleep(0.1)
        yield port
    finally:
        server.kill()
        server.wait()
