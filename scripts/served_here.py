"""A rollout server in a thread of this process, as ``ngrpo serve`` runs it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ngrpo.config.check import checked
from ngrpo.config.schema import ServeConfig
from ngrpo.entrypoints.composition import composed
from ngrpo.entrypoints.serve import bound_socket, handling_of, web_server
from ngrpo.serving.app import application
from ngrpo.serving.handling import Handling
from ngrpo.serving.settings import ServerSettings


@contextmanager
def serving(*words: str) -> Iterator[tuple[Handling, str]]:
    """Serves on a free port until the block ends; yields the server's parts and its address.

    Args:
        words: settings of ``conf/serve.yaml``.
    """
    composition = composed("serve", [*words, "server.port=0"])
    config = checked(composition.config, ServeConfig)
    settings, chosen = ServerSettings(**config.server), composition.choices["exploration"]
    with bound_socket(settings) as listening, handling_of(config, chosen, settings) as handling:
        web = web_server(application(handling))
        thread = threading.Thread(target=lambda: web.run([listening]), daemon=True)
        thread.start()
        while not web.started:
            time.sleep(0.01)
        try:
            yield handling, f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            web.should_exit = True
            thread.join(timeout=30)
