"""What version 0.1 could import gives the very objects at the new places, with a warning at the caller's line."""

import pickle
import subprocess
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest
from forked import call
from places import ROOT

from ngrpo.compat.moved import CALLBACKS, MODULES, NAMES
from ngrpo.types.rollouts import Sampling

Warned = list[tuple[str, str, int]]
"""Message, file and line of each warning."""


def said(statement: str, path: Sequence[str] = ()) -> Warned:
    """Runs a statement in a process that has imported nothing by an old name, and returns what it warns of."""
    return [(message, file, line) for message, file, line in call(_said, statement, path)]


def _said(statement: str, path: Sequence[str]) -> Warned:
    sys.path[:0] = path
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", FutureWarning)
        exec(compile(statement, "caller.py", "exec"), {"resolve_name": resolve_name})
    return [(str(one.message), one.filename, one.lineno) for one in caught]


@pytest.mark.parametrize(
    ("statement", "old", "new"),
    [
        ("import ngrpo.schedule as found", "ngrpo.schedule", "ngrpo.training.optim.lr_schedule"),
        ("from ngrpo import schedule as found", "ngrpo.schedule", "ngrpo.training.optim.lr_schedule"),
        ("import ngrpo; found = ngrpo.schedule", "ngrpo.schedule", "ngrpo.training.optim.lr_schedule"),
        ("from ngrpo.rollout import types as found", "ngrpo.rollout.types", "ngrpo.types.rollouts"),
        ("from ngrpo.config import build as found", "ngrpo.config.build", "ngrpo.config.instantiate.build"),
        ("import ngrpo.config; found = ngrpo.config.build", "ngrpo.config.build", "ngrpo.config.instantiate.build"),
    ],
)
def test_an_old_name_warns_once_at_the_line_that_asks_for_it(statement: str, old: str, new: str) -> None:
    checked = f"pass\n{statement}\nassert found is resolve_name({new!r})"
    assert said(checked) == [(f"{old} is {new} now; import it from there.", "caller.py", 2)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ngrpo.rollout.types.Rollout", "ngrpo.types.rollouts.Rollout"),
        ("ngrpo.rewards.terms.Responses", "ngrpo.rewards.terms.base.Responses"),
        ("ngrpo.rollout.torch_engine.TorchEngine", "ngrpo.rollout.torch_engine.engine.TorchEngine"),
        ("ngrpo.distributed.ranks", "ngrpo.distributed.collectives.ranks"),
        ("ngrpo.loggers.Csv", "ngrpo.loggers.csv.Csv"),
        ("ngrpo.module.PolicyOptimization", "ngrpo.training.module.PolicyOptimization"),
    ],
)
def test_classes_and_functions_are_the_very_same(old: str, new: str) -> None:
    module, _, name = old.rpartition(".")
    (warning,) = said(f"from {module} import {name} as found\nassert found is resolve_name({new!r})")
    assert new.rpartition(".")[0] in warning[0]


def _every_old_name() -> list[str]:
    wrong = []
    for old, new in (*MODULES.items(), *NAMES.items()):
        if ".vllm." in new:
            continue
        package, _, name = old.rpartition(".")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = import_module(old) if old in MODULES else getattr(import_module(package), name)
        if found is not resolve_name(new):
            wrong.append(old)
    return wrong


def test_every_old_name_leads_to_the_object_at_the_new_one() -> None:
    assert call(_every_old_name) == []


def test_what_was_never_there_is_not_found() -> None:
    for statement in ("import ngrpo.nothing", "from ngrpo.config import nothing", "from ngrpo import nothing"):
        with pytest.raises(ImportError, match="nothing"):
            exec(statement)


def test_modules_at_the_new_place_keep_their_own_name() -> None:
    said(
        "import ngrpo.files, ngrpo.utils.atomic_write\n"
        "assert ngrpo.files.__spec__.name == ngrpo.files.__name__ == 'ngrpo.utils.atomic_write'"
    )


def test_pickles_by_old_names_load() -> None:
    kept = pickle.dumps(Sampling(0.5, 3, (1,)), protocol=0)
    old = kept.replace(b"ngrpo.types.rollouts", b"ngrpo.rollout.types")
    assert old != kept
    with pytest.warns(FutureWarning, match=r"ngrpo.rollout.types is ngrpo.types.rollouts now"):
        assert pickle.loads(old) == Sampling(0.5, 3, (1,))


CALLBACKS_MOVED = "callbacks is ngrpo.callbacks now; import it from there."


@pytest.mark.parametrize(
    "statement",
    [
        "import callbacks.stopping as found",
        "from callbacks import stopping as found",
        "from callbacks.stopping import GracefulStop; import callbacks; found = callbacks.stopping",
        "import ngrpo.callbacks.rollout, callbacks.stopping as found",
    ],
)
def test_callbacks_of_a_checkout_are_one_package_however_they_are_imported(statement: str) -> None:
    first, *others = said(
        f"{statement}\nimport ngrpo.callbacks.stopping\nassert found is ngrpo.callbacks.stopping\n"
        "import callbacks, callbacks.stopping\nassert callbacks is ngrpo.callbacks",
        [str(ROOT)],
    )
    assert first == (CALLBACKS_MOVED, "caller.py", 1)
    assert {warning[0] for warning in others} <= {
        "callbacks.stopping is ngrpo.callbacks.stopping now; import it from there."
    }


def test_callbacks_that_have_moved_further_are_found() -> None:
    _, (message, _, _) = said("import callbacks.over_ranks", [str(ROOT)])
    assert message == f"callbacks.over_ranks is {CALLBACKS['callbacks.over_ranks']} now; import it from there."


def test_a_fresh_process_in_a_checkout_finds_the_one_package() -> None:
    code = "import callbacks, sys; assert sys.modules['callbacks'] is sys.modules['ngrpo.callbacks']"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"<string>:1: FutureWarning: {CALLBACKS_MOVED}" in done.stderr


@pytest.mark.parametrize("file", ["callbacks.py", "callbacks/stopping.py", "callbacks/__init__.py"])
def test_callbacks_of_the_user_are_the_users(file: str, tmp_path: Path) -> None:
    (tmp_path / "callbacks").mkdir()
    (tmp_path / file).write_text("mine = True")
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    # As with an installed package: no checkout, whose folder of callbacks Python would find, is on the path.
    away = (
        "import pathlib, sys; sys.path = [at for at in sys.path if not pathlib.Path(at, 'callbacks/best.py').exists()]"
    )
    found = f"import {module} as found\nassert found.mine and found.__name__ == {module!r}"
    assert said(f"{away}\n{found}", [str(tmp_path)]) == []
