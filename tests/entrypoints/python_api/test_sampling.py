"""Sampling and scoring from Python: any strategy, from a name or from memory, and the trainer's log-probs."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import ngrpo
from ngrpo.entrypoints.sampled_rollout import SampledRollout
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.context import StepContext
from ngrpo.modeling.loading import MODEL_PATH, ModelSource
from ngrpo.types.records import Step

QUESTION = "Tom has 3 apples and buys 4 more. How many apples does Tom have?"
OTHER = "Lily has 9 pears and gives 2 away. How many pears does Lily have?"


@dataclass(frozen=True)
class Halves(Exploration):
    """A strategy of the user's: half the most probable token, half the second, at every position."""

    width = 2

    def step(self, logits: torch.Tensor, context: StepContext) -> Step:
        ids = logits.topk(2).indices
        everywhere = torch.ones(len(logits), dtype=torch.bool, device=logits.device)
        return Step(ids[:, 0], everywhere, ids, torch.full_like(ids, 0.5, dtype=torch.float32))


@pytest.fixture(scope="module")
def mixed() -> list[SampledRollout]:
    return ngrpo.sample("demo", [QUESTION, OTHER], exploration={"name": "neighbor", "rate": 0.5}, n=2)


def same(one: Sequence[SampledRollout], other: Sequence[SampledRollout]) -> bool:
    return [(r.text, r.mixed, r.key) for r in one] == [(r.text, r.mixed, r.key) for r in other]


def test_it_gives_n_rollouts_of_each_prompt_with_what_was_mixed(mixed: list[SampledRollout]) -> None:
    assert [rollout.prompt for rollout in mixed] == [QUESTION, QUESTION, OTHER, OTHER]
    assert len({rollout.key for rollout in mixed}) == 4
    for rollout in mixed:
        assert "".join(rollout.token_texts).startswith(rollout.text)
        assert "boxed" in rollout.text
        assert "<|im_end|>" not in rollout.text
        assert [one.place for one in rollout.mixed] == (rollout.mixture.positions - len(rollout.prompt_ids)).tolist()
        for one in rollout.mixed:
            assert one.names[0].strip() == rollout.token_texts[one.place].strip()
            assert len(one.names) == 3
            assert sum(one.weights) == pytest.approx(1.0)
    assert sum(len(rollout.mixed) for rollout in mixed) > 8


def test_mixed_positions_are_marked(mixed: list[SampledRollout]) -> None:
    rollout = max(mixed, key=lambda one: len(one.mixed))
    anchor, weight = rollout.mixed[0].names[0].strip(), rollout.mixed[0].weights[0]
    assert f"[{anchor} {weight:.2f}" in rollout.marked()
    assert rollout.marked().count("[") == len(rollout.mixed)
    assert f"{len(rollout.mixed)} of {rollout.length} positions mixed" in repr(rollout)


def test_the_trainers_log_probs_are_the_engines(mixed: list[SampledRollout]) -> None:
    plain = ngrpo.sample("demo", QUESTION, "rollout.temperature=0.7", seed=3)
    rollouts = [mixed[0], *plain, *mixed[1:]]
    scores = ngrpo.score("demo", rollouts)
    for rollout, score in zip(rollouts, scores, strict=True):
        torch.testing.assert_close(score.log_prob, rollout.log_probs, atol=1e-4, rtol=0)
        assert score.entropy.shape == (rollout.length,)
        assert (score.entropy >= 0).all()
    without = ngrpo.score("demo", [max(mixed, key=lambda one: len(one.mixed)).without_mixtures()])  # type: ignore[list-item]
    longest = mixed.index(max(mixed, key=lambda one: len(one.mixed)))
    assert not torch.allclose(without[0].log_prob, mixed[longest].log_probs, atol=1e-3)


def test_exact_scores_are_the_exact_engines_bit_for_bit() -> None:
    rollouts = ngrpo.sample("demo", [QUESTION, OTHER], "rollout.exact=true", exploration="neighbor")
    for rollout, score in zip(rollouts, ngrpo.score("demo", rollouts, "rollout.exact=true"), strict=True):
        assert torch.equal(score.log_prob, rollout.log_probs)
    soft = ngrpo.sample("demo", QUESTION, exploration="gaussian")
    with pytest.raises(SettingError, match=r"rollout\.exact=true .* exploration=GaussianSoftTokens scores densities"):
        ngrpo.score("demo", soft, "rollout.exact=true")


def test_the_seed_decides(mixed: list[SampledRollout]) -> None:
    settings: dict[str, Any] = {"exploration": {"name": "neighbor", "rate": 0.5}, "n": 2}
    assert same(ngrpo.sample("demo", [QUESTION, OTHER], **settings), mixed)
    assert not same(ngrpo.sample("demo", [QUESTION, OTHER], seed=1, **settings), mixed)


def test_a_strategy_may_be_an_object_of_the_users() -> None:
    (rollout,) = ngrpo.sample("demo", QUESTION, exploration=Halves())
    assert rollout.exploration == Halves()
    assert rollout.mixed
    assert all(one.weights == [0.5, 0.5] for one in rollout.mixed)
    (score,) = ngrpo.score("demo", [rollout])
    torch.testing.assert_close(score.log_prob, rollout.log_probs, atol=1e-4, rtol=0)


def test_a_model_in_memory_gives_the_same_and_stays_as_it_is(mixed: list[SampledRollout]) -> None:
    tokenizer = ModelSource().tokenizer()
    model = AutoModelForCausalLM.from_pretrained(MODEL_PATH, dtype=torch.float32)
    before = (model.config._attn_implementation, model.training, next(model.parameters()).requires_grad)
    settings: dict[str, Any] = {"exploration": {"name": "neighbor", "rate": 0.5}, "n": 2, "tokenizer": tokenizer}
    made = ngrpo.sample(model, [QUESTION, OTHER], "data.max_prompt_tokens=128", "rollout.max_new_tokens=64",
                        "rollout.temperature=1.0", **settings)  # fmt: skip
    assert same(made, mixed)
    assert (model.config._attn_implementation, model.training, next(model.parameters()).requires_grad) == before
    (score,) = ngrpo.score(model, mixed[:1], tokenizer=tokenizer)
    torch.testing.assert_close(score.log_prob, mixed[0].log_probs, atol=1e-4, rtol=0)


def test_a_prompt_may_be_a_conversation() -> None:
    conversation = [{"role": "user", "content": QUESTION}]
    assert same(ngrpo.sample("demo", conversation), ngrpo.sample("demo", QUESTION))
    assert len(ngrpo.sample("demo", [conversation, OTHER])) == 2


def test_modules_beside_the_users_yaml_files_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "it's mine"
    (folder / "exploration").mkdir(parents=True)
    (folder / "my_halves.py").write_text(
        "from ngrpo.exploration.token import TokenSampling\n\nclass Mine(TokenSampling): ...\n"
    )
    (folder / "exploration" / "halves.yaml").write_text("_target_: my_halves.Mine\n")
    (rollout,) = ngrpo.sample("demo", QUESTION, exploration="halves", config_dir=folder)
    assert type(rollout.exploration).__name__ == "Mine"


@pytest.mark.parametrize(
    ("arguments", "settings", "sentence"),
    [
        (("demo", QUESTION), {"n": 0}, r"^n=0 samples nothing; choose 1 or more\.$"),
        (("demo", QUESTION), {"exploration": "nieghbor"}, r"^exploration=nieghbor is not known; choose one of argmax"),
        (("demo", QUESTION, "rollout.temperture=1"), {}, r"^rollout\.temperture is no setting; the nearest is"),
        (("demo", [QUESTION, "x " * 500]), {}, r"^prompt 2 cannot be used \(prompt too long\); change it, or raise"),
        (("demo", QUESTION), {"exploration": {"name": "neighbor", "rate": 7}}, r"rate=7"),
        (("demo", QUESTION), {"tokenizer": 1}, r"^tokenizer= is for a model in memory"),
    ],
)
def test_one_sentence_for_what_cannot_work(arguments: Any, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence) as refused:
        ngrpo.sample(*arguments, **settings)
    assert "\n" not in str(refused.value)


def test_nothing_is_printed_and_no_setting_of_the_process_is_changed(capfd: pytest.CaptureFixture[str]) -> None:
    loggers = [logging.getLogger(name) for name in ("ngrpo", "lightning.pytorch", "")]

    def state() -> Any:
        return torch.get_num_threads(), [(one.level, one.propagate, list(one.handlers)) for one in loggers]

    torch.set_num_threads(2)
    try:
        before = state()
        ngrpo.sample("demo", QUESTION, exploration="neighbor")
        assert state() == before
    finally:
        torch.set_num_threads(1)
    assert capfd.readouterr() == ("", "")


def test_four_lines_of_python_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    lines = f"""\
import ngrpo
for rollout in ngrpo.sample("demo", {QUESTION!r}, exploration="neighbor", n=4):
    print(rollout.marked())
"""
    assert lines.count("\n") <= 4
    exec(lines, {})
    assert capsys.readouterr().out.count("boxed") >= 4
