"""The web server's side of a connection: it hangs up on clients that do not finish what they began."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 30.0
"""Longest wait for the headers of a request, from the connection or their first byte on."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 by h11, which limits the size of headers, and a limit of their time."""

    headers_s = HEADERS_S
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begins to wait for headers."""
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        """Reads on, and waits for headers as long as they have begun and not ended."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self._deadline is None and self.conn.trailing_data[0]:
                self._expect_headers()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        self._deadline = self.loop.call_later(self.headers_s, self._hang_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hang_up(self) -> None:
        self.transport.close()
