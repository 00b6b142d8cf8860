"""A server of rollouts, made from its configuration."""

import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import torch
import uvicorn
from omegaconf import DictConfig
from starlette.types import ASGIApp

from ngrpo.config.instantiate import build, build_kind
from ngrpo.config.ranges import check_finite
from ngrpo.data.chat import PromptBuilder
from ngrpo.data.chat_template import chat_format, fix_date
from ngrpo.entrypoints.engine_choice import choose_for_sampling, tell
from ngrpo.entrypoints.engine_comparison import check_engine
from ngrpo.entrypoints.hydra_main import CONF
from ngrpo.entrypoints.input_validation import check_accelerator, check_inputs, check_mixtures
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.digest import weights_digest
from ngrpo.modeling.learned import load_learned
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.planning.meta_model import meta_model
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.recovery import engine_failures
from ngrpo.rollout.remote_engine import RemoteEngine
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.serving.app import application
from ngrpo.serving.asked import Reader
from ngrpo.serving.catalogue import Catalogue, read_presets
from ngrpo.serving.handling import Handling
from ngrpo.serving.metrics import Metrics
from ngrpo.serving.served_model import Parameters, ServedModel
from ngrpo.serving.settings import ServerSettings
from ngrpo.serving.tensor_store import TensorStore
from ngrpo.serving.web_protocol import PatientProtocol
from ngrpo.types.rollouts import Sampling
from ngrpo.utils.torch_settings import accelerator_of, set_torch

log = logging.getLogger(__name__)

RunningEngine = Callable[[ModelSource, Exploration], RolloutEngine]
"""Returns the engine for a model and the strategy of the server's own settings."""

_HEADER_BYTES = 16 << 10
_IDLE_S = 30
_TURN_S = 1e-4
_COLLECTED_AT = 100_000
"""Objects that have come and not gone before the garbage collector looks at them: those of 500 requests that wait."""

_GIB = 1 << 30


def serve(config: DictConfig, chosen: str) -> None:
    """Serves until the process is asked to stop.

    Args:
        config: composed from ``conf/serve.yaml``, checked.
        chosen: the preset of the strategy.

    Raises:
        SettingError: a setting cannot work; raised before the model is loaded.
        EngineFailure: the engine does not start.
    """
    settings = ServerSettings(**config.server)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which the web server raises again when it has ended
    with suppress(KeyboardInterrupt), bound_socket(settings) as listening, served(config, chosen, settings) as app:
        where = f"http://{settings.host}:{listening.getsockname()[1]}"
        log.info("serving %s at %s%s", config.model.path, where, "" if settings.token else ", without a token")
        web_server(app).run([listening])


@contextmanager
def bound_socket(settings: ServerSettings) -> Iterator[socket.socket]:
    """Takes the port; nobody is answered there until the web server listens.

    Raises:
        SettingError: another program has it, or the address is not this machine's.
    """
    with ExitStack() as stack:
        try:
            (family, kind, protocol, _, address), *_ = socket.getaddrinfo(
                settings.host, settings.port, type=socket.SOCK_STREAM
            )
            listening = stack.enter_context(socket.socket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # for a client that takes nothing of what was sent
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(settings.send_timeout_s * 1000))
            listening.bind(address)
        except OSError as error:
            raise SettingError(
                f"server.host={settings.host} with server.port={settings.port} cannot be listened on "
                f"({error.strerror}); choose others."
            ) from error
        yield listening


def web_server(app: ASGIApp) -> uvicorn.Server:
    """Returns the web server of an application; it is not started."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=PatientProtocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=_HEADER_BYTES,
            timeout_keep_alive=_IDLE_S,
            ws="none",
            lifespan="off",
        )
    )


@contextmanager
def served(config: DictConfig, chosen: str, settings: ServerSettings) -> Iterator[ASGIApp]:
    """Starts the engine and yields the application; ends the engine afterwards (see `handling_of`)."""
    with handling_of(config, chosen, settings) as handling:
        yield application(handling)


@contextmanager
def handling_of(
    config: DictConfig, chosen: str, settings: ServerSettings, running: RunningEngine | None = None
) -> Iterator[Handling]:
    """Starts the engine and yields what the handlers need; ends the engine afterwards.

    Args:
        config: see `serve`.
        chosen: see `serve`.
        settings: of the server.
        running: returns the engine of a server that has started one; None for that of the configuration.
    """
    set_torch(config.threads, config.matmul_precision)
    check_accelerator(config.accelerator, "accelerator", "accelerator=cpu")
    source: ModelSource = build(config.model)
    strategy: Exploration = build_kind(Exploration, config.exploration)
    rollout = RolloutSettings(max_new_tokens=config.rollout.max_new_tokens, temperature=config.rollout.temperature)
    check_finite(config)
    check_mixtures(strategy, source.config())
    choice = choose_for_sampling(config, source, strategy, settings.max_requests)
    engine: RolloutEngine
    if running is None:
        engine = build(config.rollout.engine, model=source, exploration=strategy, exact=config.rollout.exact)
    else:
        engine = running(source, strategy)
    if isinstance(engine, RemoteEngine):
        raise SettingError("rollout=server asks a server, and this is to be one; set rollout=auto, torch or vllm.")
    tokenizer = check_inputs(source, strategy, engine, config, settings.max_requests)
    fix_date(config.data, tokenizer, None)
    prompts = PromptBuilder(tokenizer, config.data.max_prompt_tokens, chat=chat_format(config.data))
    sampling = Sampling(rollout.temperature, rollout.max_new_tokens, source.stop_ids(tokenizer))
    catalogue = Catalogue(read_presets(CONF, config), chosen, config.exploration)
    tell(choice)
    try:
        with engine_failures():
            engine.start(torch.device("cuda" if accelerator_of(config.accelerator) == "gpu" else "cpu"))
            table = engine.embedding()
        vocabulary = Vocabulary.of(tokenizer)
        bound = bind(strategy, table, vocabulary, load_learned(source, strategy))
        check_engine(engine, bound, source, config, len(tokenizer))
        parameters, size = _parameters(source)
        store = TensorStore(_store_bytes(settings, size))
        version = weights_digest(source)[:16]
        model = ServedModel(
            engine,
            source,
            parameters,
            vocabulary,
            settings.max_waiting,
            sampling.max_new_tokens,
            store,
            version,
            started_for=strategy,
        )
    except BaseException:
        engine.close()
        raise
    longest = max(map(len, tokenizer.get_vocab()))
    reader = Reader(settings, catalogue, tokenizer, prompts, sampling, threading.Lock(), longest)
    try:
        with kept_from_collection(), short_thread_turns():
            yield Handling(settings, model, reader, Metrics(model), source.path)
    finally:
        model.close()


@contextmanager
def kept_from_collection() -> Iterator[None]:
    """Has Python's garbage collector leave alone what is there: it looks through half a million objects for a second.

    Nobody is answered meanwhile, and it begins when many requests come at once. Of what these bring it looks through
    the same objects again and again, and finds none to free: they are freed when they are answered.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_AT, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def short_thread_turns() -> Iterator[None]:
    """Has Python's threads take turns of 0.1 ms, which are 5 ms otherwise.

    A step of an engine in this process gives its turn up at each CUDA graph that it launches, a hundred times in a
    prefill. Each time it would wait a whole turn of the thread that reads requests: 64 prompts took 0.7 s, not 0.03.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _parameters(source: ModelSource) -> tuple[Parameters, int]:
    """Returns what weights of the model are called, their shapes, and their bytes in float32."""
    model: ScoringModel = meta_model(source.config(), DTYPES[source.dtype], trust_remote_code=source.trust_remote_code)
    lm = model.lm
    named = dict(lm.named_parameters())
    table = lm.get_input_embeddings().weight
    embedding = next(name for name, parameter in named.items() if parameter is table)
    size = sum(parameter.numel() for parameter in named.values()) * torch.float32.itemsize
    return Parameters({name: parameter.shape for name, parameter in named.items()}, embedding), size


def _store_bytes(settings: ServerSettings, weights: int) -> int:
    if settings.max_tensors_gib is not None:
        return int(settings.max_tensors_gib * _GIB)
    return 2 * weights + _GIB
