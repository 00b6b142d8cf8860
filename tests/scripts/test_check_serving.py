"""The check of a server under load finds nothing, and would find what is wrong."""

import importlib
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest
from places import ROOT


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("check_serving")


def test_clients_of_all_kinds_at_once_get_their_own_and_leave_nothing(checks: ModuleType) -> None:
    served = checks.serving("exploration=neighbor", "rollout=torch", "accelerator=cpu")
    # The browser of other tests has an event loop in this thread.
    with served as (handling, url), ThreadPoolExecutor(1) as aside:
        figures = aside.submit(checks.check, handling, url, clients=24, asks=2, bodies=160, updates=2).result()
    assert figures.faults() == []
    assert figures.statuses == Counter({"200": figures.statuses["200"]})
    assert figures.rollouts > 40
    assert figures.killed == 4  # two clients, twice
    assert len(figures.of_version) >= 2
    assert sum(figures.malformed.values()) == 160
    assert figures.malformed["400"] > 100


def test_faults_are_told(checks: ModuleType) -> None:
    figures = checks.Figures(largest_difference=0.1, statuses=Counter({"200": 5, "500": 1}))
    figures.malformed, figures.left = Counter({"400": 9, "503": 2}), {"streams": 1, "threads": 0}
    assert figures.faults() == [
        "2 malformed bodies got 503",
        "1 requests got 500",
        "1 streams are left",
        "a log-prob replays to a difference of 0.1",
    ]


def test_bodies_are_malformed_in_many_ways(checks: ModuleType) -> None:
    draw = random.Random(0)
    made = {checks.malformed(draw) for _ in range(500)}
    assert len(made) > 300
    assert {path for path, _ in made} == {checks.GENERATE, checks.CHAT, checks.COMPLETION, checks.WEIGHTS}
