"""Hundreds of clients on one rollout server, some of them hostile, while its weights change.

    python scripts/check_serving.py --clients 200 --asks 5 --bodies 2000 --updates 2 --json serving_checks.json

The server of ``ngrpo serve`` runs in this process. All at once: clients ask for rollouts with three strategies, through
this project's interface and OpenAI's, whole and streamed; some hang up before their answer, or in the middle of it;
others send malformed bodies; and new weights are sent. Then it is checked that every rollout is of one version of the
weights and replays with them to its own log-probs; that no body was answered with a 5xx status; and that no rollout,
slot, stream or thread is left, and no memory beyond a few MiB.
"""

import argparse
import asyncio
import json
import random
import resource
import string
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich import get_console
from served_here import serving
from serving_clients import Client
from torch import Tensor
from transformers import AutoModelForCausalLM

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.exploration.random import request_key
from ngrpo.modeling.loading import ModelSource
from ngrpo.remote.connection import ServerConnection
from ngrpo.remote.messages import rollout_of
from ngrpo.remote.server_group import ServerGroup
from ngrpo.remote.tensor_parts import cut
from ngrpo.replay.hook import replayed
from ngrpo.replay.records import RecordTensors
from ngrpo.serving.handling import Handling
from ngrpo.types.rollouts import Rollout

GENERATE, CHAT, COMPLETION, WEIGHTS = "/ngrpo/generate", "/v1/chat/completions", "/v1/completions", "/ngrpo/weights"
STRATEGIES: list[dict[str, Any]] = [
    {"name": "token"},
    {"name": "neighbor", "rate": 0.4},
    {"name": "soft", "rate": 0.5},
]
TOLERANCE = 1e-4
"""Of log-probs in float32."""

_PROMPT, _TOKENS = 12, 48


@dataclass
class Figures:
    """What was seen.

    Attributes:
        rollouts: that clients got.
        killed: clients that hung up.
        statuses: answers to good requests.
        malformed: answers to malformed bodies.
        of_version: rollouts by the version of the weights.
        largest_difference: of a log-prob replayed with these weights.
        seconds: of all that.
        grown_mib: of memory in the second half, clients and what they got included.
        left: what should have gone, by name.
    """

    rollouts: int = 0
    killed: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    malformed: Counter[str] = field(default_factory=Counter)
    of_version: Counter[str] = field(default_factory=Counter)
    largest_difference: float = 0.0
    seconds: float = 0.0
    grown_mib: float = 0.0
    left: dict[str, int] = field(default_factory=dict)

    def faults(self) -> list[str]:
        """Returns what is not as it must be."""
        found = [
            f"{count} malformed bodies got {status}" for status, count in self.malformed.items() if status >= "500"
        ]
        found += [f"{count} requests got {status}" for status, count in self.statuses.items() if status != "200"]
        found += [f"{count} {name} are left" for name, count in self.left.items() if count]
        if self.largest_difference >= TOLERANCE:
            found.append(f"a log-prob replays to a difference of {self.largest_difference:.2g}")
        return found


def main() -> None:
    """Checks and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollout", default="torch", choices=("torch", "vllm"))
    parser.add_argument("--clients", type=whole(1), default=200)
    parser.add_argument("--asks", type=whole(1), default=5, help="requests of a client, one after the other")
    parser.add_argument("--bodies", type=whole(0), default=2000, help="malformed ones")
    parser.add_argument("--updates", type=whole(0), default=2, help="of the weights")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    words = ["model.path=demo", "exploration=soft", f"rollout={arguments.rollout}", "accelerator=cpu"]
    with serving(*words) as (handling, url):
        figures = check(handling, url, arguments.clients, arguments.asks, arguments.bodies, arguments.updates)
    get_console().print(figures)
    if arguments.json:
        about = {"date": time.strftime("%Y-%m-%d"), "clients": arguments.clients, "rollout": arguments.rollout}
        arguments.json.write_text(json.dumps(about | vars(figures), indent=1) + "\n")
    if faults := figures.faults():
        raise SystemExit("; ".join(faults))


def check(handling: Handling, url: str, clients: int, asks: int, bodies: int, updates: int) -> Figures:
    """Has everything happen at once, and looks at what came of it.

    Args:
        handling: the server's parts, of the demo model.
        url: its address.
        clients: good ones, of which every tenth hangs up now and then.
        asks: requests of each.
        bodies: malformed ones.
        updates: of the weights.
    """
    figures = Figures()
    versions = {handling.model.weights.version: 0.0}
    got: list[tuple[int, Rollout, str]] = []
    start = time.perf_counter()
    resident = []
    for half in (0, 1):  # what is allocated once is there after the first
        own = range(updates)[half * updates // 2 : (half + 1) * updates // 2]
        _storm(figures, url, versions, got, clients, range(asks)[half::2], bodies // 2, own)
        _settled(handling)
        resident.append(_resident_mib())
    figures.seconds = time.perf_counter() - start
    figures.grown_mib = resident[1] - resident[0]
    figures.left = {
        "waiting rollouts": handling.model.waiting,
        "threads": sum(thread.name == "engine" for thread in threading.enumerate()),
        "streams": handling.model.open_streams,
    }
    figures.rollouts, figures.of_version = len(got), Counter(version for _, _, version in got)
    if unknown := figures.of_version.keys() - versions.keys():
        raise SystemExit(f"rollouts are of weights that nobody sent: {sorted(unknown)}")
    figures.largest_difference = max(
        _difference([(kind, rollout) for kind, rollout, version in got if version == one], changed)
        for one, changed in versions.items()
        if figures.of_version[one]
    )
    return figures


def _storm(
    figures: Figures,
    url: str,
    versions: dict[str, float],
    got: list[tuple[int, Rollout, str]],
    clients: int,
    asks: Sequence[int],
    bodies: int,
    updates: Sequence[int],
) -> None:
    """Lets everybody loose, and waits for all of them."""

    async def everybody() -> None:
        good = [_good_client(figures, url, number, asks, got) for number in range(clients)]
        bad = [_bad_client(figures, url, random.Random(f"{number} {asks}"), bodies // 8) for number in range(8)]
        await asyncio.gather(*good, *bad)

    with ThreadPoolExecutor(1) as aside:
        sending = aside.submit(_send_updates, url, versions, updates)
        asyncio.run(everybody())
        sending.result()


def _send_updates(url: str, versions: dict[str, float], updates: Sequence[int]) -> None:
    group = ServerGroup([ServerConnection(url)])
    for number in updates:
        time.sleep(0.5)
        change = (number + 1) / 50
        sent = group.send_weights(cut(weights(change).items(), 1 << 18), number + 1)
        versions[sent.version] = change


def weights(change: float) -> dict[str, Tensor]:
    """Returns the demo's weights, changed a little."""
    return {name: one.detach() * (1 + change) for name, one in ModelSource().load().named_parameters()}


async def _good_client(
    figures: Figures, url: str, number: int, asks: Sequence[int], got: list[tuple[int, Rollout, str]]
) -> None:
    draw, client = random.Random(number), Client(url)
    for ask in asks:
        kind = (number + ask) % len(STRATEGIES)
        prompt = [draw.randrange(10, 500) for _ in range(draw.randint(1, _PROMPT))]
        key, most = request_key(number, ask), draw.randint(1, _TOKENS)
        if number % 10 == 9:
            await _hang_up(client, prompt, most, draw)
            figures.killed += 1
        elif number % 5 == 3:
            figures.statuses[await _openai(client, kind, prompt, most, key, draw)] += 1
        else:
            requests = [{"prompt_ids": prompt, "key": key}, {"prompt_ids": prompt, "key": key + 1}]
            body = {"exploration": STRATEGIES[kind], "sampling": {"max_new_tokens": most}, "requests": requests}
            status, content = await client.ask(GENERATE, json.dumps(body).encode())
            figures.statuses[str(status)] += 1
            if status == 200:
                said = json.loads(content)
                version = said["weights"]["version"]
                got.extend((kind, rollout_of(one, tuple(prompt)), version) for one in said["rollouts"])
    client.close()


async def _openai(client: Client, kind: int, prompt: list[int], most: int, key: int, draw: random.Random) -> str:
    body = {"prompt": prompt, "max_tokens": most, "key": key, "exploration": STRATEGIES[kind]}
    body |= {"stream": draw.random() < 0.5, "n": 2, "logprobs": 1}
    status, content = await client.ask(COMPLETION, json.dumps(body).encode())
    if status == 200 and body["stream"] and not content.endswith(b"data: [DONE]\n\n"):
        return "cut off"
    return str(status)


async def _hang_up(client: Client, prompt: list[int], most: int, draw: random.Random) -> None:
    """Asks, and is gone before the answer or in the middle of it."""
    body = {"prompt": prompt, "max_tokens": most, "n": 8, "stream": draw.random() < 0.5}
    await client.send(COMPLETION, json.dumps(body).encode())
    with suppress(TimeoutError, asyncio.IncompleteReadError):
        assert client.reader is not None
        await asyncio.wait_for(client.reader.read(draw.randint(1, 2000)), draw.random() / 10)
    client.close()


async def _bad_client(figures: Figures, url: str, draw: random.Random, bodies: int) -> None:
    client = Client(url)
    for _ in range(bodies):
        try:
            status, _content = await client.ask(*malformed(draw))
        except (asyncio.IncompleteReadError, ConnectionError):
            client.close()
            status = 0
        figures.malformed[str(status or "hung up")] += 1
    client.close()


def malformed(draw: random.Random) -> tuple[str, bytes]:
    """Returns a path, and a body that is wrong in one place or in all."""
    good: dict[str, dict[str, Any]] = {
        GENERATE: {"requests": [{"prompt_ids": [5, 6], "key": 1}], "weights": {"oldest_step": 0},
                   "sampling": {"max_new_tokens": 4, "temperature": 1.0}, "exploration": {"name": "soft", "rate": 0.1}},
        CHAT: {"messages": [{"role": "user", "content": "1 + 1"}], "n": 1, "max_tokens": 4, "stop": ["x"]},
        COMPLETION: {"prompt": "1 + 1", "n": 1, "max_tokens": 4, "seed": 3, "stream": False, "logprobs": 1},
        WEIGHTS: {"tensors": ["f" * 64], "step": 1},
    }  # fmt: skip
    path = draw.choice(list(good))
    text = json.dumps(_damaged(good[path], draw)).encode()
    if draw.random() < 0.2:  # no JSON any more
        at = draw.randrange(len(text))
        text = text[:at] + draw.randbytes(draw.randint(0, 4)) + text[at + draw.randint(1, 6) :]
    return path, text


def _damaged(value: Any, draw: random.Random) -> Any:
    """Changes something in a value, of whatever kind."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        name = draw.choice(list(value))
        changed = {**value, name: _damaged(value[name], draw)}
        if draw.random() < 0.2:
            changed[draw.choice([*_NAMES, "".join(draw.choices(string.printable, k=5))])] = _anything(draw)
        if draw.random() < 0.1:
            del changed[name]
        return changed
    if isinstance(value, list) and value and draw.random() < 0.8:
        return [_damaged(value[0], draw), *value[1:]] * draw.choice((1, 1, 1, 2, 300))
    return _anything(draw)


_NAMES = (
    "prefix",
    "tables",
    "parameters",
    "key",
    "progress",
    "top_p",
    "tools",
    "_target_",
    "stream_options",
    "explore",
)


def _anything(draw: random.Random) -> Any:
    return draw.choice(
        [None, True, False, 0, -1, -(10**30), 10**30, 2**63, 1e308, 1e-320, 0.5, "", "x" * 3000, "\ud800", "neighbor",
         "${oc.env:HOME}", [], {}, [[]], [None], [10**6], [-1], {"name": "neighbor"}, {"name": []}, "f" * 64,
         {"ids": [1], "mixture": {}}, [{"role": "user"}], {"a": {"b": {"c": [[[[]]]]}}}, float("nan"), float("inf")]
    )  # fmt: skip


def _settled(handling: Handling) -> None:
    """Waits until nothing is being made."""
    deadline = time.monotonic() + 60
    while (handling.model.waiting or handling.model.open_streams) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)


def _resident_mib() -> float:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _difference(rollouts: Sequence[tuple[int, Rollout]], change: float) -> float:
    """Returns the largest difference of a log-prob that is replayed with changed weights."""
    model: Any = AutoModelForCausalLM.from_pretrained(ModelSource().location, attn_implementation="eager").eval()
    changed = weights(change)
    with torch.no_grad():
        for name, one in model.named_parameters():
            one.copy_(changed[name])
    found = 0.0
    for kind in range(len(STRATEGIES)):
        own = [rollout for number, rollout in rollouts if number == kind]
        for start in range(0, len(own), 64):
            found = max(found, _replayed_difference(model, own[start : start + 64]))
    return found


@torch.no_grad()
def _replayed_difference(model: Any, rollouts: Sequence[Rollout]) -> float:
    longest = max(one.tokens for one in rollouts)
    ids = torch.zeros(len(rollouts), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, one in enumerate(rollouts):
        ids[row, : one.tokens], mask[row, : one.tokens] = torch.cat((one.prompt_ids, one.response_ids)), 1
    with replayed(model, RecordTensors.of(rollouts, mask)):
        scores = model(input_ids=ids, attention_mask=mask).logits.log_softmax(-1)
    own = scores[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return max(
        float((own[row, len(one.prompt_ids) - 1 : one.tokens - 1] - one.log_probs).abs().max())
        for row, one in enumerate(rollouts)
    )


if __name__ == "__main__":
    run_main(main)
