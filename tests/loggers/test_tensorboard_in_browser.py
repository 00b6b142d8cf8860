"""TensorBoard's pages in a real browser: two runs are told apart, and the table of settings has their metrics."""

from pathlib import Path
from typing import Any

import pytest
import torch
from headless_browser import IN_BROWSER, OpenedPage
from tensorboard import program

from ngrpo.loggers.media import Histogram
from ngrpo.loggers.media_adapters import adapter_of
from ngrpo.loggers.tensorboard import TensorBoard

pytestmark = IN_BROWSER
RUNS = {"neighbor-gspo-s0-14-03-27-512044": 0.625, "token-grpo-s1-14-03-27-512045": 0.375}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    outputs = tmp_path_factory.mktemp("outputs")
    for name, reached in RUNS.items():
        exploration, algo, seed, *_ = name.split("-")
        write_run(outputs / "2026-01-31" / name, exploration, algo, int(seed[1:]), reached)
    server = program.TensorBoard()
    server.configure(argv=["tensorboard", "--logdir", str(outputs), "--port", "0", "--load_fast", "false"])
    return server.launch()


def write_run(folder: Path, exploration: str, algo: str, seed: int, reached: float) -> None:
    """Writes what a run that was killed has written."""
    logger = TensorBoard(str(folder), "tensorboard", "")
    settings = {"seed": seed, "methods": {"exploration": exploration, "algo": algo}, "rollout": {"group_size": 8}}
    logger.log_hyperparams(settings)
    for step in range(3):
        logger.log_metrics({"eval/mean@1": reached * step / 2, "train/reward": 0.1 * step}, step)
        adapter_of(logger).log_media({"policy/ratios": Histogram.of(torch.rand(9))}, step)
    logger.save()


def opened(browser: Any, address: str, tab: str) -> OpenedPage:
    return OpenedPage(browser, f"{address}#{tab}", width=1600)


def test_both_runs_are_named(browser: Any, address: str):
    with opened(browser, address, "timeseries") as page:
        for name in RUNS:
            page.page.get_by_text(name).first.wait_for(timeout=60_000)


def test_the_table_of_settings_has_both_runs_with_their_metrics(browser: Any, address: str):
    with opened(browser, address, "hparams") as page:
        for text in (*RUNS, "methods.exploration", "neighbor", "token", "eval/mean@1"):
            page.page.get_by_text(text).first.wait_for(timeout=60_000)
        for reached in RUNS.values():
            page.page.get_by_text(f"{reached:.3f}"[:4]).first.wait_for(timeout=60_000)


def test_the_charts_of_custom_scalars_are_laid_out(browser: Any, address: str):
    with opened(browser, address, "custom_scalars") as page:
        for category in ("Learning", "Exploration", "Health"):
            page.page.get_by_text(category).first.wait_for(timeout=60_000)
