"""No file that is read runs code: each payload would write ``marker``, and does where the command line permits it."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from forked import ROOT, Done, Scripts
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from ngrpo.checkpoint.folders import publish
from ngrpo.config.permissions import grant, modules_of, typed
from ngrpo.config.schema import register
from ngrpo.errors import SettingError
from ngrpo.study.definition import load_study
from ngrpo.training.skipped_steps import BadStep, save

PAYLOAD = """
from pathlib import Path

def run(*arguments, **settings):
    Path("marker").touch()

class Own:
    def __init__(self, *arguments, **settings):
        run()
"""
OWN_CODE = {"AutoConfig": "payload.Own", "AutoModelForCausalLM": "payload.Own", "AutoTokenizer": ["payload.Own", None]}


class Opened:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch marker",)


def bad_step(path: Path, settings: dict[str, Any]) -> None:
    save(BadStep(settings, 0, 0, "x", [], []), path)


def checkpoint(run: Path, settings: Any, state: Any) -> None:
    """A complete checkpoint, and the settings of its run."""
    temporary = run / "checkpoints" / "iteration-1.tmp"
    temporary.mkdir(parents=True)
    torch.save(state, temporary / "state.ckpt")
    publish(temporary, run / "checkpoints" / "iteration-1", {})
    (run / ".hydra").mkdir()
    OmegaConf.save(OmegaConf.create(settings), run / ".hydra" / "config.yaml")


def model_with_code(folder: Path) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": OWN_CODE}))
    (folder / "payload.py").write_text("from transformers import PretrainedConfig\n" + PAYLOAD + "\nrun()\n")
    return str(folder)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The current directory of the attacked; on its Python path lies a module with the payload."""
    folder = tmp_path / "here"
    (folder / "modules").mkdir(parents=True)
    (folder / "modules" / "payload.py").write_text(PAYLOAD)
    return folder


@pytest.fixture
def attacked(here: Path, scripts: Scripts) -> Callable[..., Done]:
    """Runs a script, and says whether the payload has run."""

    def run(*command: str, path: tuple[str, ...] = (), permitted: bool = False) -> Done:
        done = scripts.run(command, here, path=[str(here / "modules"), *path])
        assert (here / "marker").exists() is permitted, done.said
        if not permitted:
            assert done.status == 1
            said = [line for line in done.said.splitlines() if "[HYDRA]" not in line]
            assert len(said) == 1, done.said
            assert said[0].startswith("error: "), done.said
        return done

    return run


@cache
def settings() -> dict[str, Any]:
    """Those of a run of the demo."""
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        return cast(dict[str, Any], OmegaConf.to_container(compose("train"), resolve=True))


def granting() -> dict[str, Any]:
    return settings() | {"allow_targets": ["payload"], "model": {"_target_": "payload.Own"}}


def test_a_bad_step_permits_itself_no_modules(here: Path, attacked: Callable[..., Done]) -> None:
    bad_step(here / "step.pt", granting())
    attacked("replay_step.py", "step.pt")
    attacked("replay_step.py", "step.pt", "--allow-targets", "payload", permitted=True)


def test_a_bad_step_permits_itself_no_code_of_a_model(here: Path, attacked: Callable[..., Done]) -> None:
    model = {"_target_": "ngrpo.modeling.loading.ModelSource", "path": model_with_code(here / "model")}
    bad_step(here / "step.pt", settings() | {"model": model | {"trust_remote_code": True}})
    attacked("replay_step.py", "step.pt")
    attacked("replay_step.py", "step.pt", "--trust-remote-code", permitted=True)


def test_a_run_permits_its_export_no_modules(here: Path, attacked: Callable[..., Done]) -> None:
    checkpoint(here / "run", granting(), {"state_dict": {}})
    attacked("export.py", "run", "out")
    attacked("export.py", "run", "out", "--config-dir", "modules", permitted=True)


def test_a_run_permits_its_export_no_code_of_a_model(here: Path, attacked: Callable[..., Done]) -> None:
    model = {"_target_": "ngrpo.modeling.loading.ModelSource", "path": model_with_code(here / "model")}
    checkpoint(here / "run", {"model": model | {"trust_remote_code": True}}, {"state_dict": {}})
    attacked("export.py", "run", "out")
    attacked("export.py", "run", "out", "--trust-remote-code", permitted=True)


def test_what_is_pickled_does_not_run(here: Path, attacked: Callable[..., Done]) -> None:
    torch.save(Opened(), here / "step.pt")
    attacked("replay_step.py", "step.pt")
    model = {"_target_": "ngrpo.modeling.loading.ModelSource", "path": "demo"}
    checkpoint(here / "run", {"model": model}, {"state_dict": {}, "payload": Opened()})
    attacked("export.py", "run", "out")


CALLBACK = "{x: {_target_: payload.run}}"
LOGGING = "{version: 1, handlers: {x: {(): payload.Own}}, root: {level: INFO, handlers: [x]}}"
NESTED = "{_target_: ngrpo.callbacks.export.Export, run_dir: x, inner: [[{a: {_target_: payload.run}}]]}"
SELF_GRANTING = {
    "allow_targets": "allow_targets: [payload]\nlogger: {_target_: payload.Own}",
    "callbacks of Hydra": f"hydra: {{callbacks: {CALLBACK}}}",
    "logging": f"hydra: {{job_logging: {LOGGING}}}",
    "logging of Hydra": f"hydra: {{hydra_logging: {LOGGING}}}",
    "launcher": "hydra: {mode: MULTIRUN, launcher: {_target_: payload.run}}",
    "sweeper": "hydra: {mode: MULTIRUN, sweeper: {_target_: payload.run}}",
    "environment": "hydra: {job: {env_set: {PYTHONPATH: modules}}}",
    "interpolated": "hydra: {callbacks: '${other}'}\n+other: " + CALLBACK,
    "sweep": "hydra: {mode: MULTIRUN, sweeper: {params: "
    "{+logger.own._target_: payload.Own, allow_targets: '[payload]'}}}",
    "model": "model: {trust_remote_code: true}",
    "options of vLLM": "rollout: {engine: {options: {worker_cls: payload.run}}}",
    "target": "logger: {_target_: payload.Own}",
    "nested": f"callbacks: {{x: {NESTED}}}",
    "positional": "exploration: {_args_: [{_target_: payload.run}]}",
    "partial": "trainer: {optimizer: {_target_: payload.run, _partial_: true}}",
    "decoded": "logger: \"${oc.decode:'{_target_: payload.Own}'}\"",
    "decoded late": "logger: \"\\\\\\\\\\\\\\\\${oc.decode:'{_target_: payload.Own}'}\"",
    "discovered": "callbacks: {x: {_target_: hydra.utils.get_method, path: payload.run}}",
    "shipped partial": "callbacks: {x: {_target_: functools.partial, _args_: [{_target_: payload.run}]}}",
    "list as target": "callbacks: {x: {_target_: [payload.run]}}",
    "look-alike": "callbacks: {x: {_target_: ngrp\u043e.payload.run}}",
    "relative": "callbacks: {x: {_target_: .payload.run}}",
}


@pytest.mark.parametrize("text", SELF_GRANTING.values(), ids=list(SELF_GRANTING))
def test_a_yaml_permits_itself_nothing(text: str, here: Path, attacked: Callable[..., Done]) -> None:
    folder = here / "settings" / "experiment"
    folder.mkdir(parents=True)
    added = "" if "hydra" in text else "defaults: [override /rollout: vllm]\n" if "rollout" in text else ""
    (folder / "strange.yaml").write_text(f"# @package _global_\n{added}{text.replace('+other', 'other')}\n")
    attacked("train.py", "--config-dir", "settings", "experiment=strange", "trainer.iterations=1")


@pytest.mark.parametrize("option", ["--help", "--cfg=job", "--cfg=all", "--info=config"])
def test_looking_at_a_configuration_runs_nothing(option: str, here: Path, scripts: Scripts) -> None:
    folder = here / "settings" / "experiment"
    folder.mkdir(parents=True)
    (folder / "strange.yaml").write_text(f"# @package _global_\nhydra: {{hydra_logging: {LOGGING}}}\n")
    done = scripts.run(
        ["train.py", "--config-dir", "settings", "experiment=strange", option], here, path=[str(here / "modules")]
    )
    assert not (here / "marker").exists()
    assert "Traceback" not in done.said


def test_a_primary_configuration_imports_nothing(here: Path, attacked: Callable[..., Done]) -> None:
    (here / "settings").mkdir()
    (here / "modules" / "importing.py").write_text("from pathlib import Path\nPath('marker').touch()\n")
    (here / "settings" / "mine.yaml").write_text(
        "defaults: [train, _self_]\nhydra: {searchpath: ['pkg://importing']}\n"
    )
    attacked("train.py", "--config-dir", "settings", "--config-name", "mine")


def test_a_stored_job_is_not_run_again(here: Path, attacked: Callable[..., Done]) -> None:
    torch.save(Opened(), here / "config.pickle", _use_new_zipfile_serialization=False)
    attacked("train.py", "--experimental-rerun", "config.pickle")


def test_modules_of_a_typed_folder_are_permitted(here: Path, scripts: Scripts) -> None:
    folder = here / "settings" / "experiment"
    folder.mkdir(parents=True)
    (here / "settings" / "of_mine.py").write_text(PAYLOAD)
    (folder / "mine.yaml").write_text("# @package _global_\nlogger: {_target_: of_mine.Own}\n")
    done = scripts.run(["train.py", "--config-dir", "settings", "experiment=mine", "debug=fast"], here)
    assert (here / "marker").exists(), done.said
    # By where its file lies: a module of the same yaml elsewhere on the path is not.
    (here / "marker").unlink()
    (folder / "mine.yaml").write_text("# @package _global_\nlogger: {_target_: payload.Own}\n")
    done = scripts.run(["train.py", "--config-dir", "settings", "experiment=mine"], here, path=[str(here / "modules")])
    assert not (here / "marker").exists()
    assert "logger._target_=payload.Own is outside the packages" in done.said


@pytest.mark.parametrize("kind", ["file", "package", "folder"])
def test_own_callbacks_beside_a_file_are_not_those_of_the_program(
    kind: str, here: Path, scripts: Scripts, tmp_path: Path
) -> None:
    shadow = here / "shadow"
    shadow.mkdir()
    if kind == "file":
        (shadow / "callbacks.py").write_text(PAYLOAD)
    else:
        (shadow / "callbacks").mkdir()
        (shadow / "callbacks" / "export.py").write_text(PAYLOAD)
        if kind == "package":
            (shadow / "callbacks" / "__init__.py").write_text("from callbacks.export import run\n")
    experiment = here / "settings" / "experiment"
    experiment.mkdir(parents=True)
    name = "callbacks.run" if kind == "file" else "callbacks.export.run"
    (experiment / "strange.yaml").write_text(f"# @package _global_\ncallbacks: {{x: {{_target_: {name}}}}}\n")
    command = ["train.py", "--config-dir", "settings", "experiment=strange", "trainer.iterations=1"]
    done = scripts.run(command, here, path=[str(shadow)])
    assert not (here / "marker").exists()
    assert done.status == 1
    assert done.said.splitlines()[-1].startswith(f"error: {'callbacks.x.' if kind == 'file' else ''}_target_="), (
        done.said
    )


def composed(**settings: Any) -> Any:
    return OmegaConf.create({"allow_targets": []} | settings)


def test_what_is_typed_is_granted() -> None:
    config = composed(model={"trust_remote_code": True}, allow_targets=["mine"])
    grant(config, ["allow_targets=[mine]", "model.trust_remote_code=true", "x._target_=a.B,c.D", "+y={_target_: e.F}"])
    assert config.allow_targets == ["mine", "a.B", "c.D", "e.F"]


@pytest.mark.parametrize(
    ("settings", "overrides", "said"),
    [
        ({"allow_targets": ["os"]}, ["algo=gspo"], "allow_targets=[os]"),
        ({"allow_targets": ["os", "mine"]}, ["allow_targets=[mine]"], "allow_targets=[os]"),
        ({"model": {"trust_remote_code": True}}, ["model=hub"], "model.trust_remote_code=true"),
        ({"model": {"trust_remote_code": True}}, ["other.trust_remote_code=true"], "model.trust_remote_code=true"),
        ({"model": "${m}", "m": {"trust_remote_code": 1}}, [], "model.trust_remote_code=1"),
        (
            {"rollout": {"engine": {"options": {"a": {"b": "os.system"}}}}},
            ["rollout.engine.options.a.c=os.system"],
            "rollout.engine.options.a.b=os.system",
        ),
    ],
)
def test_what_is_not_typed_is_refused(settings: dict[str, Any], overrides: list[str], said: str) -> None:
    with pytest.raises(SettingError) as caught:
        grant(composed(**settings), overrides)
    assert str(caught.value) == (
        f"{said} is a permission that a file of the configuration gives itself; take it out there, and if you trust "
        f"it, type {said} on the command line."
    )


def test_modules_are_those_that_python_finds_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("found_here.py", "json.py", "callbacks.py"):
        (tmp_path / name).touch()
    (tmp_path / "package_here").mkdir()
    (tmp_path / "package_here" / "__init__.py").touch()
    assert modules_of(tmp_path) == ["found_here", "package_here"]
    with pytest.raises(SettingError, match="is no folder"):
        modules_of(tmp_path / "nowhere")


def test_overrides_that_cannot_be_parsed_type_nothing() -> None:
    assert typed(["{", "a=[", "x._target_=mine.Own"]) == ["mine.Own"]


@pytest.mark.parametrize(
    "text",
    [
        "train: ['allow_targets=[payload]']",
        "train: [+logger.own._target_=payload.Own]",
        "train: ['+callbacks.x={_target_: payload.run}']",
        "train: [--config-dir, modules]",
        "train: [hydra.job.chdir=true]",
        "evaluate: [model.trust_remote_code=true]",
        "arms: {token_grpo: {overrides: [+logger.own._target_=payload.Own]}}",
        "make_model: [modules/payload.py]",
        'make_model: [-c, \'open("marker", "w")\']',
    ],
)
def test_a_study_permits_itself_nothing(text: str, tmp_path: Path) -> None:
    conf = Path(shutil.copytree(ROOT / "conf", tmp_path / "conf"))
    (conf / "study" / "strange.yaml").write_text(f"# @package _global_\ndefaults: [quick, _self_]\n{text}\n")
    with pytest.raises(SettingError, match="a permission that a file gives itself|the one module that makes models"):
        load_study(conf, "strange", [])


def test_the_shipped_studies_need_no_permission() -> None:
    for name in ("demo", "quick", "smollm2"):
        load_study(ROOT / "conf", name, [])
    load_study(ROOT / "conf", "quick", ["train=['model.trust_remote_code=true']"])
