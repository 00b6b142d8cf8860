"""Reward functions are tried before anything is generated: wrong results, missing columns, errors, hanging."""

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from places import ROOT

from ngrpo.config.permissions import typed
from ngrpo.config.schema import register
from ngrpo.entrypoints.evaluate import evaluate
from ngrpo.entrypoints.train import train
from ngrpo.errors import SettingError

QUIET = [f"callbacks.{name}=null" for name in ("evaluation", "export", "checkpoint", "rollout_report", "progress")]
ROWS = [{"prompt": [{"role": "user", "content": f"What is {i} + 2?"}], "answer": i + 2, "level": i} for i in range(6)]


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(ROWS))
    return [f"data.path={file}", "data.question_field=prompt", "data.max_prompt_tokens=200"]


def config(script: str, overrides: list[str]) -> Any:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        made = compose(script, overrides=overrides)
    made.allow_targets = typed(overrides)
    return made


def run(folder: Path, *overrides: str) -> None:
    given = ["debug=fast", "trainer=cpu", "trainer.iterations=1", *QUIET, *overrides]
    train(config("train", given), folder, {"algo": "grpo"}, folder)


@pytest.fixture
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the model is loaded")

    monkeypatch.setattr("ngrpo.entrypoints.train._module", refuse)


def test_answers_that_cannot_be_checked_are_refused_before_anything_is_generated(
    tmp_path: Path, nothing_is_loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(SettingError, match=r"^an answer-checking process did not start, .*; fix that, or choose"):
        run(tmp_path / "run")


IN_PROCESS = "custom_reward_timeout_s=null"
REWARD = ["reward=custom", "reward._target_=reward_functions.returning"]


@pytest.mark.parametrize(
    ("what", "clause"),
    [
        ("nothing", "reward returned None, not a list with a number for each of 4 responses"),
        ("one float", "reward returned 0.5 (float), not a list"),
        ("too few", "reward returned 3 scores for 4 responses"),
        ("one a problem", "reward returned shape (2,), not one value for each of 4 responses"),
        ("not a number", "reward returned nan for response 1"),
        ("text", "reward returned 'good' (str) for response 0, which is no number"),
        ("none inside", "reward returned None for response 0, which is no number"),
        ("matrix", "reward returned shape (4, 1), not one value"),
        ("infinite", "reward returned inf for response 0"),
    ],
)
def test_a_wrong_result_is_refused(what: str, clause: str, tmp_path: Path, nothing_is_loaded: None) -> None:
    end = " on a trial call with 4 made-up responses; let it return one number for each."
    with pytest.raises(SettingError, match=f"^{re.escape(clause)}.*{re.escape(end)}$"):
        run(tmp_path / "run", *REWARD, f"+reward.what={what}", IN_PROCESS)


def test_a_terms_too_in_a_process_of_its_own(tmp_path: Path, nothing_is_loaded: None) -> None:
    own = ("reward_terms=[custom]", "reward_terms.custom.term._target_=reward_functions.returning")
    with pytest.raises(SettingError, match=r"^reward_terms.custom returned 3 scores for 4 responses on a trial call"):
        run(tmp_path / "run", *own, "+reward_terms.custom.term.what=too few")


@pytest.mark.parametrize("limit_s", ["null", "20"])
def test_an_exception_shows_its_traceback(
    limit_s: str, tmp_path: Path, nothing_is_loaded: None, caplog: pytest.LogCaptureFixture
) -> None:
    own = ["reward=custom", "reward._target_=reward_functions.buggy", f"custom_reward_timeout_s={limit_s}"]
    sentence = r"^reward raised KeyError\('I do not know.'\) in reward_functions.py:\d+ on a trial call .*; fix it\.$"
    with pytest.raises(SettingError, match=sentence):
        run(tmp_path / "run", *own)
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "in helper" in record.getMessage()


def test_one_that_hangs_is_refused(tmp_path: Path, nothing_is_loaded: None) -> None:
    own = ["reward=custom", "reward._target_=reward_functions.hangs", "custom_reward_timeout_s=1"]
    with pytest.raises(SettingError, match=r"^reward took longer than custom_reward_timeout_s=1 on a trial call"):
        run(tmp_path / "run", *own)


def test_columns_that_are_not_there_are_named(tmp_path: Path, data: list[str], nothing_is_loaded: None) -> None:
    own = ["reward=custom", "reward._target_=reward_functions.by_level", IN_PROCESS]
    sentence = (
        r"^reward._target_=reward_functions.by_level asks for level, and the rows of data have completions, answer, "
        r"prompts, questions; add fields of the data to data.keep_fields \(there are level\), or a setting as \+reward"
    )
    with pytest.raises(SettingError, match=sentence):
        run(tmp_path / "run", *own, *data)
    with pytest.raises(SettingError, match=r"the rows of benchmark.demo have .*; add fields .* benchmark.demo.keep_"):
        run(tmp_path / "run", *own, *data, "data.keep_fields=[level]", "benchmark=[demo]")


@pytest.fixture
def rewards_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """Trains an iteration and returns the rewards and terms that its rollouts got."""
    seen: list[float] = []
    from ngrpo.rollout.worker import RolloutWorker

    shape = RolloutWorker.shape_rewards

    def observed(self: RolloutWorker, experience: Any) -> Any:
        made = shape(self, experience)
        seen.extend(made.rewards.flatten().tolist())
        return made

    monkeypatch.setattr(RolloutWorker, "shape_rewards", observed)

    def rewards(*overrides: str) -> list[float]:
        run(tmp_path / "run", *overrides)
        return seen

    return rewards


def test_a_function_of_kept_fields_trains(rewards_of: Callable[..., list[float]], data: list[str]) -> None:
    own = ["reward=custom", "reward._target_=reward_functions.all_columns", "data.keep_fields=[level]"]
    assert set(rewards_of(*own, *data)) == {4.0}  # answer, prompts, questions, level


def test_the_trial_leaves_the_state_as_it_was(rewards_of: Callable[..., list[float]]) -> None:
    own = ["reward_terms=[custom]", "reward_terms.custom.term._target_=reward_functions.Counted"]
    assert set(rewards_of(*own, "reward_terms.custom.weight=10")) <= {10.0, 11.0}


def test_the_trial_leaves_nothing_in_a_process_of_its_own(rewards_of: Callable[..., list[float]]) -> None:
    assert set(rewards_of("reward=custom", "reward._target_=reward_functions.Remembering")) == {1.0}


def test_an_evaluation_tries_too(tmp_path: Path) -> None:
    own = ["reward=custom", "reward._target_=reward_functions.returning", "+reward.what=nothing", IN_PROCESS]
    given = [*own, "benchmark.demo.problems=2", "n=1"]
    with pytest.raises(SettingError, match=r"^reward returned None, .* on a trial call with 4 made-up responses"):
        evaluate(config("evaluate", given), tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("by_position", r"takes completions, answer by position only, and columns are passed by name; take the / out"),
        (
            "of_pairs_and_more",
            r"asks for level, and the rows of data have prompts, questions; add fields of the data to",
        ),
        (
            "one_of",
            r"^reward._target_=reward_functions.one_of takes completion, and a reward without a parameter completions "
            r"is called with responses and references; call its parameter completions, which is the list of the resp",
        ),
        ("OneOf", r"^reward._target_=reward_functions.OneOf takes completion, and a reward without"),
        (
            "decorated_narrow",
            r"^reward raised TypeError\(.*\) in reward_functions.py:\d+ on a trial call with 4 made-up responses; its "
            r"parameters are \(\*args, \*\*kwargs\), so that all columns \(completions, answer, ...\) were passed by "
            r"name: read them by name, or write @functools.wraps in its decorator\.$",
        ),
        ("decorated_pairs", r"^reward raised TypeError\(.*; its parameters are .*functools.wraps in its decorator\.$"),
        ("collecting_by_position", r"^reward raised IndexError\(.*: read them by name, or write @functools.wraps"),
        ("of_too_few_pairs", r"^reward returned 1 scores for 4 responses on a trial call"),
        ("yielding", r"^reward returned <generator object .* \(generator\), not a list with a number for each of 4"),
        ("yielding_later", r"^reward returned <async_generator .* \(async_generator\), not a list with a number"),
        (
            "never_awaited",
            r"^reward returned <coroutine .* \(coroutine\) for response 0, which is no number on a trial",
        ),
        ("pairs_later", r"^reward returned <coroutine .* \(coroutine\), not a list with a number for each of 4 resp"),
        ("leaving", r"^reward ended the program \(SystemExit\(3\)\) on a trial call .*; let it return or raise\.$"),
        ("Pending", r"^reward has a state that no checkpoint can hold \(cannot pickle 'generator' object\)"),
        ("Forgetful", r"^reward has a state that no checkpoint can hold \(.*\); let state_dict\(\) return numbers"),
    ],
)
def test_what_cannot_be_called_or_saved_is_refused(
    name: str, sentence: str, tmp_path: Path, nothing_is_loaded: None
) -> None:
    with pytest.raises(SettingError, match=sentence):
        run(tmp_path / "run", "reward=custom", f"reward._target_=reward_functions.{name}", IN_PROCESS)


def test_the_trial_passes_whatever_can_be_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Passed(Exception):
        pass

    def stop(*_: object, **__: object) -> None:
        raise Passed

    monkeypatch.setattr("ngrpo.entrypoints.train._module", stop)
    for name in ("of_pairs", "only_columns", "shortest", "of_ten", "Awaited", "ready_made", "decorated", "emptying"):
        for limit in ("null", "20") if name in ("of_pairs", "ready_made", "emptying") else ("null",):
            own = ["reward=custom", f"reward._target_=reward_functions.{name}", f"custom_reward_timeout_s={limit}"]
            with pytest.raises(Passed):
                run(tmp_path / "run", *own)


@pytest.mark.parametrize("limit_s", ["null", "20"])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "yielding",
            r"^reward returned <generator .* \(generator\), not a list with a number for each of 4 responses on a",
        ),
        (
            "Pending",
            r"^reward has a state that (cannot be saved|no checkpoint can hold) \(cannot pickle 'generator' obj",
        ),
    ],
)
def test_what_cannot_leave_its_process_is_told_alike(
    name: str, sentence: str, limit_s: str, tmp_path: Path, nothing_is_loaded: None
) -> None:
    own = ["reward=custom", f"reward._target_=reward_functions.{name}", f"custom_reward_timeout_s={limit_s}"]
    with pytest.raises(SettingError, match=sentence):
        run(tmp_path / "run", *own)


TERM = "reward_terms.custom.term._target_=reward_functions"


@pytest.mark.parametrize("limit_s", ["null", "20"])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "term_yielding",
            r"^reward_terms.custom returned <generator .* \(generator\), not a list with a number for each",
        ),
        (
            "term_of_too_few",
            r"^reward_terms.custom returned shape \(1,\), not one value for each of 8 responses on a trial",
        ),
        (
            "term_buggy",
            r"^reward_terms.custom raised KeyError\(.*\) in reward_functions.py:\d+ on a trial call with 8 made",
        ),
    ],
)
def test_terms_of_responses_are_tried_too(
    name: str,
    sentence: str,
    limit_s: str,
    tmp_path: Path,
    nothing_is_loaded: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = ("reward_terms=[custom]", f"{TERM}.{name}", f"custom_reward_timeout_s={limit_s}")
    with pytest.raises(SettingError, match=sentence):
        run(tmp_path / "run", *own, "rollout.group_size=4")
    shown = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert ["in helper" in one for one in shown] == [True] * (name == "term_buggy")


@pytest.mark.parametrize("name", ["centred_length", "masked"])
def test_a_term_of_responses_gets_whole_groups_and_may_exclude(
    name: str, rewards_of: Callable[..., list[float]]
) -> None:
    assert rewards_of("reward_terms=[custom]", f"{TERM}.{name}", IN_PROCESS, "rollout.group_size=4")


def test_the_trial_leaves_the_state_of_a_term_of_responses(rewards_of: Callable[..., list[float]]) -> None:
    own = ["reward_terms=[custom]", f"{TERM}.CountedTerm", "reward_terms.custom.weight=10"]
    assert set(rewards_of(*own)) <= {10.0, 11.0}
