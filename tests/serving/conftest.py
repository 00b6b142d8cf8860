"""One server for the tests that change nothing of it."""

from collections.abc import Iterator

import pytest
from running_server import RunningServer, running_server


@pytest.fixture(scope="package")
def server() -> Iterator[RunningServer]:
    with running_server("exploration=neighbor") as running:
        yield running
