"""The child of the tests of `ngrpo.rewards.isolation.child_process`: it does what a request says."""

import os
import time

from ngrpo.rewards.isolation.child_process import serve


class ChildService:
    def start(self, settings: bytes) -> bytes:
        if settings == b"refuse":
            raise ValueError("refused")
        if settings == b"hang":
            time.sleep(600)
        return settings

    def answer(self, request: bytes) -> bytes:
        match request:
            case b"hang":
                time.sleep(600)
            case b"hold":
                7**10**9  # holds the interpreter
            case b"die":
                os._exit(1)
            case b"raise":
                raise KeyError("no such key")
            case b"environment":
                return "|".join([os.getcwd(), os.environ["GREETING"], str(os.getpgid(0) == os.getpid())]).encode()
        return request


if __name__ == "__main__":
    serve(ChildService())
