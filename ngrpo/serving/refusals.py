"""Refusals of requests: a status of HTTP with one sentence."""

from http import HTTPStatus


class Refusal(Exception):
    """A request is not served; the message is the sentence that the client gets.

    Attributes:
        status: of the answer.
        code: names the reason for programs; None where the status does.
        param: the field that is to blame; None for none.
    """

    def __init__(self, status: HTTPStatus, sentence: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.param = param


def other_weights(sentence: str) -> Refusal:
    """Returns the refusal of a request for weights that are not served."""
    return Refusal(HTTPStatus.CONFLICT, sentence, "other_weights")


def older_weights(step: int, served: int) -> Refusal:
    """Returns the refusal of weights that come after newer ones, or beside others of the same number."""
    return Refusal(
        HTTPStatus.CONFLICT,
        f"step={step} is not newer than the weights of step {served} that are served; send it with a larger number.",
        "older_weights",
    )


def missing_tensors(names: list[str]) -> Refusal:
    """Returns the refusal of a request that refers to tensors which are not here."""
    listed = ", ".join(name[:12] for name in names[:3])
    return Refusal(
        HTTPStatus.CONFLICT, f"tensors {listed} are not here; send them to /ngrpo/tensors again.", "missing_tensors"
    )


def busy(waiting: int, most: int) -> Refusal:
    """Returns the refusal of a request when too many are waiting."""
    return Refusal(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"{waiting} rollouts are waiting, and server.max_waiting={most} may; ask again later.",
        "busy",
    )


def broken(reason: str) -> Refusal:
    """Returns the refusal of every request after the engine has failed."""
    return Refusal(
        HTTPStatus.SERVICE_UNAVAILABLE, f"the rollout engine failed ({reason}); start the server again.", "broken"
    )


def engine_failed(reason: str) -> Refusal:
    """Returns the refusal of a request that the engine failed at, and others may not."""
    return Refusal(
        HTTPStatus.INTERNAL_SERVER_ERROR, f"the rollout engine failed ({reason}); the server's log says where."
    )


def too_large(what: str, most_mib: float) -> Refusal:
    """Returns the refusal of a body that is too large."""
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{what} is larger than {most_mib:g} MiB; send less at once.")
