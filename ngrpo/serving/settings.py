"""The settings of a server: where it listens, who may ask, and how much at once."""

import ipaddress
from dataclasses import dataclass

from ngrpo.errors import SettingError
from ngrpo.remote.connection import TOKEN_VARIABLE, token_from

_SHORTEST_TOKEN = 16
_PORTS = 65535
_POSITIVE = (
    "max_body_mib", "max_part_mib", "max_requests", "max_waiting", "max_width", "body_timeout_s", "send_timeout_s"
)  # fmt: skip


@dataclass(frozen=True)
class ServerSettings:
    """``server`` in the configuration.

    Attributes:
        host: address that is listened on.
        port: 0 takes a free one.
        token_variable: environment variable with the bearer token that every request must show; where it is unset,
            only this machine is listened to.
        max_body_mib: of a request's body, but for weights.
        max_part_mib: of a part of tensors that is sent.
        max_tensors_gib: of all tensors that are kept for clients; None for twice the weights and 1 GiB.
        max_requests: rollouts in one request.
        max_waiting: rollouts that are asked for and not made; what comes then is refused.
        max_width: ids in a mixture that a request may ask for.
        body_timeout_s: longest wait for a whole body.
        send_timeout_s: longest wait until a client takes a part of its answer.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token_variable: str = TOKEN_VARIABLE
    max_body_mib: float = 16.0
    max_part_mib: float = 512.0
    max_tensors_gib: float | None = None
    max_requests: int = 1024
    max_waiting: int = 8192
    max_width: int = 64
    body_timeout_s: float = 60.0
    send_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _PORTS:
            raise SettingError(f"server.port={self.port} is no port; choose one in [0, {_PORTS}].")
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise SettingError(f"server.{name}={getattr(self, name)} serves nothing; choose a positive number.")
        if self.max_tensors_gib is not None and not self.max_tensors_gib > 0:
            raise SettingError(
                f"server.max_tensors_gib={self.max_tensors_gib} keeps nothing; choose a positive number."
            )
        if not self.token and not self.is_local:
            raise SettingError(
                f"server.host={self.host} is reached from other machines, and {self.token_variable} holds no token; "
                "set that environment variable to a long random text, or server.host=127.0.0.1."
            )
        if self.token and (len(self.token) < _SHORTEST_TOKEN or not self.token.isascii() or " " in self.token):
            raise SettingError(
                f"the token in {self.token_variable} is no ASCII text of {_SHORTEST_TOKEN} characters or more without "
                "spaces; set a long random one."
            )

    @property
    def token(self) -> str | None:
        """The bearer token; None without one. It is in no representation of the settings."""
        return token_from(self.token_variable)

    @property
    def is_local(self) -> bool:
        """Whether only this machine is listened to."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
