from types import SimpleNamespace

import pytest

from ngrpo.callbacks import solution_paths
from ngrpo.callbacks.solution_paths import SolutionPaths


def test_ways_are_counted_group_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: dict[str, list[int]] = {}
    monkeypatch.setattr(
        solution_paths,
        "log_means",
        lambda trainer, module, values: logged.update({k: v.tolist() for k, v in values.items()}),
    )
    texts = ["a 1+1=2", "b 1 + 1 = 2", "easy", "2+2=4", "3+3=6", "4+4=8"]
    experience = SimpleNamespace(texts=texts, group_size=3)
    SolutionPaths("calculations").on_train_batch_start(None, None, SimpleNamespace(experience=experience), 0)
    assert logged == {"train/distinct_paths": [2, 3]}
