"""The functions of an algorithm are tried before a model is loaded: those of the package pass, wrong ones are not."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from places import ROOT
from torch import Tensor

from ngrpo.algo import advantage, kl, ratio
from ngrpo.algo.adaptive_entropy import AdaptiveEntropy, EntropyCoefficient
from ngrpo.algo.aggregate import token_mean
from ngrpo.algo.best import with_best
from ngrpo.algo.clip import Surrogate, clipped_surrogate
from ngrpo.algo.correction import Correction, RolloutCorrection
from ngrpo.algo.credit import Broadcast, Credited, ScoredBatch
from ngrpo.algo.outcome_bonus import DifferentAnswers, Gather, OutcomeBonus, RareAnswers
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.token_weight import TokenWeight, TokenWeighting, WeighedTokens
from ngrpo.config.instantiate import build
from ngrpo.config.schema import register
from ngrpo.entrypoints.algorithm_trial import try_algorithm
from ngrpo.errors import SettingError

SOUND = Algorithm(
    advantage.group_standardised, ratio.token, partial(clipped_surrogate, low=0.2, high=0.2), token_mean, kl.k3
)
NAMES = sorted(path.stem for path in (ROOT / "conf/algo").glob("*.yaml") if path.stem != "base")


@pytest.mark.parametrize("name", NAMES)
def test_those_of_the_package_pass(name: str) -> None:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        algorithm = with_best(build(compose("train", overrides=[f"algo={name}"]).algo), (0.0, 1.0))
    for group_size in (1, 2, 8):
        try_algorithm(algorithm, group_size)


def clip(make: Callable[[Tensor, Tensor], Any]) -> Algorithm:
    return replace(SOUND, clip=make)


def mask(loss: Tensor) -> Tensor:
    return torch.zeros_like(loss, dtype=torch.bool)


class Assigned(Broadcast):
    """A credit that gives what a function makes of the sound advantages [1, N]."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        object.__setattr__(self, "make", make)

    def __call__(self, batch: ScoredBatch, advantages: Tensor, penalty: Tensor) -> Any:
        return self.make(super().__call__(batch, advantages, penalty).advantages)  # type: ignore[attr-defined]


class Weighed(RolloutCorrection):
    """A correction that gives what a function makes of the log weights [N]."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        self.make = make

    def __call__(self, log_weight: Tensor, lengths: Tensor) -> Any:
        return self.make(log_weight)


class Chosen(TokenWeighting):
    """Token weights that a function makes of log-probs [N]."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        self.make = make

    def __call__(self, tokens: WeighedTokens) -> Any:
        return self.make(tokens.log_prob)


class Bonus(OutcomeBonus):
    """A bonus that a function makes of the number of responses; its state is given."""

    def __init__(self, make: Callable[[int], Any], state: Any = None) -> None:
        self.make, self.state = make, {} if state is None else state

    def __call__(self, keys: Sequence[int], answers: Sequence[str | None], gather: Gather) -> Any:
        gather([])
        return self.make(len(keys))

    def state_dict(self) -> dict[str, Any]:
        return self.state


class Coefficient(EntropyCoefficient):
    """A coefficient that a function makes of the entropy."""

    def __init__(self, make: Callable[[float], Any]) -> None:
        self.make, self.value = make, make(0.0)

    @property
    def weight(self) -> Any:
        return self.value

    def update(self, entropy: float) -> None:
        self.value = self.make(entropy)


def bonus(make: Callable[[int], Any], state: Any = None) -> Algorithm:
    return replace(SOUND, bonus=Bonus(make, state))


def coefficient(make: Callable[[float], Any]) -> Algorithm:
    return replace(SOUND, adaptive_entropy=Coefficient(make))


def token_weight(make: Callable[[Tensor], Any]) -> Algorithm:
    return replace(SOUND, token_weight=Chosen(make))


def credit(make: Callable[[Tensor], Any]) -> Algorithm:
    return replace(SOUND, credit=Assigned(make))


def correction(make: Callable[[Tensor], Any]) -> Algorithm:
    return replace(SOUND, correction=Weighed(make))


WRONG = {
    "a bare credit": (credit(lambda a: a), "algo.credit returned a Tensor; return a ngrpo.algo.credit.Credited"),
    "credit by response": (
        credit(lambda a: Credited(a[:, :2])), "algo.credit returned advantages of shape [1, 2] instead of [1, 5]"
    ),
    "credit without channels": (
        credit(lambda a: Credited(a[0])), "algo.credit returned advantages of shape [5] instead of [5, 5]"
    ),
    "credit of no tensor": (credit(lambda a: Credited(a.tolist())), "algo.credit returned a list; return a tensor"),
    "infinite credit": (credit(lambda a: Credited(a / 0)), "a response with a reward that are not finite; guard"),
    "credit for no reward": (
        credit(lambda a: Credited(a.nan_to_num(0.0))), "numbers for a response without a reward (nan); keep nan"
    ),
    "returns by response": (credit(lambda a: Credited(a, a[0, :2])), "algo.credit returned returns of shape [2]"),
    "a bare correction": (
        correction(lambda w: w.exp()), "algo.correction returned a Tensor; return a ngrpo.algo.correction.Correction"
    ),
    "weights of responses": (
        correction(lambda w: Correction(w[:2], w[:2] > 0)), "algo.correction returned weights of shape [2] instead"
    ),
    "weights that are not finite": (
        correction(lambda w: Correction(w.log(), w > 0)), "algo.correction returned weights that are not finite"
    ),
    "bounded numbers": (
        correction(lambda w: Correction(w.exp(), w)), "algo.correction returned bounded that is no mask of the tokens"
    ),
    "bare token weights": (
        token_weight(lambda lp: lp.exp()), "algo.token_weight returned a Tensor; return a ngrpo.algo.token_weight.Tok"
    ),
    "negative token weights": (token_weight(lambda lp: TokenWeight(lp[None], lp < 9)), "weights below 0, which would"),
    "token weights without channels": (
        token_weight(lambda lp: TokenWeight(lp.exp(), lp < 9)), "weights of shape [5] instead of [1, 5]"
    ),
    "counted numbers": (token_weight(lambda lp: TokenWeight(lp.exp()[None], lp)), "counted that is no mask"),
    "penalties of responses": (
        token_weight(lambda lp: TokenWeight(lp.exp()[None], lp < 9, lp[:2])), "penalties of shape [2] instead of [5]"
    ),
    "bonuses of no tensor": (bonus(lambda n: [0.0] * n), "algo.bonus returned a list; return a tensor of shape [4]"),
    "bonuses of problems": (bonus(lambda n: torch.zeros(2)), "algo.bonus returned bonuses of shape [2] instead of [4]"),
    "whole bonuses": (bonus(lambda n: torch.zeros(n).long()), "bonuses of dtype torch.int64; return floating-point"),
    "infinite bonuses": (bonus(lambda n: torch.zeros(n).log()), "algo.bonus returned bonuses that are not finite"),
    "a bonus's exception": (bonus(lambda n: torch.zeros(n)[n]), "algo.bonus raised IndexError("),
    "a bonus's state": (
        bonus(torch.zeros, {"seen": object()}), "algo.bonus has a state that no checkpoint can hold ("
    ),
    "a bonus's state of no dictionary": (bonus(torch.zeros, [1]), "algo.bonus has a state_dict() of type list; return"),
    "a state that cannot be read": (
        bonus(torch.zeros, {"seen": 1}), "algo.bonus raised ValueError(\"Bonus learns nothing, and ['seen'] were stored"
    ),
    "a negative coefficient": (
        coefficient(lambda entropy: -entropy), "algo.adaptive_entropy returned weight=-0.01, which is no coefficient"
    ),
    "a coefficient of no number": (coefficient(str), "algo.adaptive_entropy returned weight='0.01', which is no coeff"),
    "a coefficient's exception": (
        coefficient(lambda entropy: [0.0][int(entropy > 1)]), "algo.adaptive_entropy raised IndexError("
    ),
    "no tensor": (replace(SOUND, advantage=lambda r: r.tolist()), "algo.advantage returned a list; return a tensor"),
    "another shape": (
        replace(SOUND, advantage=lambda r: r.nanmean(-1)),
        "algo.advantage returned advantages of shape [3] instead of [3, 4]; keep the shape",
    ),
    "whole numbers": (replace(SOUND, advantage=lambda r: (r > 0).long()), "of dtype torch.int64; return"),
    "infinite": (replace(SOUND, advantage=lambda r: r / r.nanmean(-1, True)[:, :1].mul(0)), "that are infinite; guard"),
    "a number for no reward": (
        replace(SOUND, advantage=lambda r: r.nan_to_num(0.0)), "0 for a response without a reward (nan); keep nan"
    ),
    "ratio without gradient": (
        replace(SOUND, ratio=lambda new, old, lengths: (new - old).detach()),
        "algo.ratio returned log ratios without a gradient to the log-probs; take out detach",
    ),
    "no surrogate": (clip(lambda r, a: -a * r), "algo.clip returned a Tensor; return a ngrpo.algo.clip.Surrogate"),
    "loss without gradient": (clip(lambda r, a: Surrogate(-a * r.detach(), mask(a))), "a loss without a gradient"),
    "loss of one channel": (
        clip(lambda r, a: Surrogate(-a[0] * r, mask(a[0]))), "algo.clip returned a loss of shape [5] instead of [2, 5]"
    ),
    "mask of numbers": (clip(lambda r, a: Surrogate(-a * r, a)), "algo.clip returned clipped that is no mask"),
    "penalties of channels": (
        clip(lambda r, a: Surrogate(-a * r, mask(a), a * r)), "algo.clip returned penalties of shape [2, 5] instead of"
    ),
    "not finite": (clip(lambda r, a: Surrogate(-a * r.log(), mask(a))), "a loss that are not finite; guard"),
    "weights by token": (
        replace(SOUND, aggregate=lambda lengths, totals: torch.ones(totals.tokens)),
        "algo.aggregate returned weights of shape [5] instead of [2]",
    ),
    "negative weights": (
        replace(SOUND, aggregate=lambda lengths, totals: -token_mean(lengths, totals)),
        "algo.aggregate returned negative weights, by which a loss is raised",
    ),
    "KL of one number": (
        replace(SOUND, kl=lambda new, reference, old: (new - reference).mean()), "algo.kl returned divergences of shape"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("algorithm", "sentence"), WRONG.values(), ids=WRONG)
def test_wrong_ones_are_refused(algorithm: Algorithm, sentence: str) -> None:
    with pytest.raises(SettingError, match=re.escape(sentence)):
        try_algorithm(algorithm, 4)


@pytest.mark.parametrize("make", [RareAnswers, partial(RareAnswers, less=0.5), DifferentAnswers, AdaptiveEntropy])
def test_a_trial_leaves_no_trace(make: Callable[[], Any]) -> None:
    part = make()
    before = part.state_dict()
    setting = "adaptive_entropy" if isinstance(part, AdaptiveEntropy) else "bonus"
    try_algorithm(replace(SOUND, **{setting: part}), 4)
    assert part.state_dict() == before == make().state_dict()


@pytest.mark.parametrize("setting", ["credit", "correction", "token_weight", "bonus", "adaptive_entropy"])
def test_objects_must_derive_from_the_class_of_their_setting(setting: str) -> None:
    sentence = rf"^algo.{setting} makes a \w+, which is no ngrpo.algo.[\w.]+; derive its class from that"
    with pytest.raises(SettingError, match=sentence):
        replace(SOUND, **{setting: print})


def test_an_exception_shows_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def own(rewards: Tensor) -> Tensor:
        raise KeyError("a typing error of the author")

    sentence = r"^algo.advantage raised KeyError\('a typing error of the author'\) in test_algorithm_trial.py:\d+ on a"
    with pytest.raises(SettingError, match=sentence):
        try_algorithm(replace(SOUND, advantage=own), 4)
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "in own" in record.getMessage()


class Doubling(Broadcast):
    """A credit that doubles what it is given."""

    def __call__(self, batch: ScoredBatch, advantages: Tensor, penalty: Tensor) -> Credited:
        return super().__call__(batch, advantages.mul_(2.0), penalty)


WRITING: dict[str, tuple[Algorithm, str]] = {
    "advantage": (replace(SOUND, advantage=lambda rewards: rewards.sub_(rewards.nanmean())), "rewards"),
    "clip": (clip(lambda r, a: Surrogate(-a.clamp_(min=0) * r.exp(), mask(a))), "advantages"),
    "kl": (replace(SOUND, kl=lambda new, old, ref: (new - ref.mul_(1.0)).square()), "old"),
    "credit": (replace(SOUND, credit=Doubling()), "advantages"),
    "token_weight": (token_weight(lambda log_prob: log_prob.exp_()), "log_prob"),
    "correction": (correction(lambda mismatch: mismatch.exp_()), "mismatch"),
}


@pytest.mark.parametrize("name", WRITING)
def test_a_change_in_place_of_what_others_go_on_with_is_refused(name: str) -> None:
    algorithm, written = WRITING[name]
    with pytest.raises(SettingError, match=f"^algo.{name} writes into the {written} that it is given"):
        try_algorithm(algorithm, 4)
