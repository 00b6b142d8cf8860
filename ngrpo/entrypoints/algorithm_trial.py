"""The trial call of an algorithm's functions, on a few made-up tokens, before any model is loaded."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ngrpo.algo.aggregate import BatchTotals
from ngrpo.algo.clip import Surrogate
from ngrpo.algo.correction import Correction
from ngrpo.algo.credit import Credited, ScoredBatch
from ngrpo.algo.groups import Groups
from ngrpo.algo.learned_state import LearnedState
from ngrpo.algo.marks import is_marked, signed
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.token_weight import TokenWeight, WeighedTokens
from ngrpo.algo.within_group import LearningSelection
from ngrpo.entrypoints.state_check import check_state
from ngrpo.entrypoints.trial_call import called_on_trial
from ngrpo.errors import SettingError
from ngrpo.utils.written_tensors import watch

_LENGTHS = torch.tensor([3, 2])
_TOKENS = int(_LENGTHS.sum())


def try_algorithm(algorithm: Algorithm, group_size: int) -> None:
    """Calls each part once: selection, advantage, bonus, credit, ratio, clip, aggregation, KL, weights, coefficient.

    What learns gets back the state that it had.

    Args:
        algorithm: the composition.
        group_size: G, rollouts a prompt.

    Raises:
        SettingError: one of them raises, returns something else than its setting asks for, or has a state that no
            checkpoint can hold.
    """
    _try_within_group(algorithm, group_size)
    _try_advantage(algorithm, group_size)
    _try_bonus(algorithm)
    _try_credit(algorithm)
    new = torch.linspace(-1.0, -0.8, _TOKENS).requires_grad_()
    old = torch.full((_TOKENS,), -0.9)
    advantages = torch.linspace(-1.0, 1.0, 2 * _TOKENS).reshape(2, _TOKENS)
    ratio = _called("ratio", lambda: algorithm.bounded_ratio(new, old, _LENGTHS, advantages).log_ratio, old=old)
    _check(
        "ratio", "log ratios", ratio, (2, _TOKENS) if is_marked(algorithm.ratio, signed) else (_TOKENS,), gradient=True
    )
    _try_clip(algorithm, ratio, advantages, new)
    totals = BatchTotals(len(_LENGTHS), _TOKENS)
    weights = _called("aggregate", lambda: algorithm.aggregate(_LENGTHS.float(), totals))
    _check("aggregate", "weights", weights, (len(_LENGTHS),))
    if bool((weights < 0).any()):
        raise _refused("aggregate", "negative weights, by which a loss is raised; return its share of each response")
    divergence = _called("kl", lambda: algorithm.kl(new, old, old), old=old)
    _check("kl", "divergences", divergence, (_TOKENS,), gradient=True)
    _try_token_weight(algorithm)
    _try_correction(algorithm)
    _try_adaptive_entropy(algorithm)


def _try_within_group(algorithm: Algorithm, group_size: int) -> None:
    """Of a group of several rewards, the last response unscored."""
    if algorithm.within_group is None:
        return
    rewards, lengths = torch.zeros(1, group_size), torch.arange(1.0, group_size + 1)[None]
    rewards[0, -1] = math.nan
    selection = algorithm.within_group
    if isinstance(selection, LearningSelection):
        with _undisturbed("within_group", selection):
            _called("within_group", lambda: selection.observe(rewards), rewards=rewards)
            _try_selection(algorithm, rewards, lengths)
    _try_selection(algorithm, rewards, lengths)


def _try_selection(algorithm: Algorithm, rewards: Tensor, lengths: Tensor) -> None:
    observed = rewards.clone()
    kept = _called(
        "within_group", lambda: algorithm.selected(rewards, lengths, observed), rewards=rewards, lengths=lengths
    )
    group_size = rewards.shape[-1]
    _check("within_group", "rewards", kept, (1, group_size), finite=False)
    if not bool((kept.isnan() | (kept == rewards)).all()):
        raise _refused("within_group", "other rewards; return each as it is, or nan, which excludes it")


def _try_advantage(algorithm: Algorithm, group_size: int) -> None:
    """Of a group of several rewards, of one without a signal, and of one with an unscored response."""
    rewards = torch.zeros(3, group_size)
    rewards[0, 0] = 1.0
    rewards[2, -1] = math.nan
    advantages = _called("advantage", lambda: algorithm.advantage(rewards), rewards=rewards)
    _check("advantage", "advantages", advantages, (3, group_size), finite=False)
    if bool(advantages.isinf().any()):
        raise _refused("advantage", "advantages that are infinite; guard its divisions")
    if not bool(advantages[2, -1].isnan()):
        raise _refused(
            "advantage",
            f"{float(advantages[2, -1]):g} for a response without a reward (nan); keep nan there, which excludes it",
        )


def _try_bonus(algorithm: Algorithm) -> None:
    """Of two responses with equal answers, one without an answer, and one to another problem; twice, with its state."""
    bonus = algorithm.bonus
    if bonus is None:
        return
    keys, answers = [1, 1, 1, 2], ["7", "7.0", None, "7"]

    def call() -> Any:
        return bonus(list(keys), list(answers), lambda pairs: [pairs])

    with _undisturbed("bonus", bonus):
        for _ in range(2):
            _check("bonus", "bonuses", _called("bonus", call), (len(keys),))


def _try_adaptive_entropy(algorithm: Algorithm) -> None:
    """After steps of little and of much entropy."""
    coefficient = algorithm.adaptive_entropy
    if coefficient is None:
        return

    def after(entropy: float) -> Any:
        coefficient.update(entropy)
        return coefficient.weight

    with _undisturbed("adaptive_entropy", coefficient):
        for entropy in (0.01, 5.0):
            weight = _called("adaptive_entropy", partial(after, entropy))
            if not isinstance(weight, int | float) or not 0 <= weight < math.inf:
                raise _refused("adaptive_entropy", f"weight={weight!r}, which is no coefficient; return 0 or more")


@contextmanager
def _undisturbed(name: str, part: LearnedState) -> Iterator[None]:
    """Gives a part the state back that it had, as a checkpoint would hold it."""
    state = deepcopy(_called(name, part.state_dict))
    yield
    check_state(f"algo.{name}", _called(name, part.state_dict))
    _called(name, lambda: part.load_state_dict(state))


def _try_credit(algorithm: Algorithm) -> None:
    """Of two responses to one prompt, the second of them unscored."""
    scores = torch.full((_TOKENS,), -0.9)
    batch = ScoredBatch(
        groups=Groups.of([0, 0]),
        rewards=torch.tensor([1.0, math.nan]),
        answers=torch.tensor([0, 1]),
        lengths=_LENGTHS,
        truncated=torch.tensor([False, True]),
        reduce=lambda values, _: values,
        old_log_prob=scores if algorithm.advantages_need_old_log_prob else None,
        ref_log_prob=scores,
        values=torch.zeros(_TOKENS) if algorithm.credit.needs_values else None,
    )
    advantages, penalty = torch.tensor([1.0, math.nan]), torch.zeros(_TOKENS)
    credited = _called(
        "credit", lambda: algorithm.credit(batch, advantages, penalty), advantages=advantages, penalty=penalty
    )
    if not isinstance(credited, Credited):
        raise _refused("credit", f"a {type(credited).__name__}; return a ngrpo.algo.credit.Credited(advantages)")
    channels = len(credited.advantages) if isinstance(credited.advantages, Tensor) and credited.advantages.ndim else 1
    _check("credit", "advantages", credited.advantages, (channels, _TOKENS), finite=False)
    scored, unscored = torch.split(credited.advantages, _LENGTHS.tolist(), -1)
    if not bool(scored.isfinite().all()):
        raise _refused("credit", "advantages of a response with a reward that are not finite; guard its divisions")
    if not bool(unscored.isnan().all()):
        raise _refused("credit", "numbers for a response without a reward (nan); keep nan there, which excludes it")
    if algorithm.credit.needs_values or credited.returns is not None:
        _check("credit", "returns", credited.returns, (_TOKENS,), finite=False)


def _try_token_weight(algorithm: Algorithm) -> None:
    """Of two responses, the second of them excluded."""
    advantages = torch.tensor([[1.0, 0.0, -1.0, math.nan, math.nan]])
    log_prob, entropy = torch.linspace(-1.0, -0.2, _TOKENS), torch.linspace(0.0, 2.0, _TOKENS)
    tokens = WeighedTokens(log_prob, entropy, advantages, torch.linspace(0.1, 0.9, _TOKENS), lambda values, _: values)
    made = _called("token_weight", lambda: algorithm.token_weight(tokens), log_prob=log_prob, entropy=entropy)
    if not isinstance(made, TokenWeight):
        name = type(made).__name__
        raise _refused("token_weight", f"a {name}; return a ngrpo.algo.token_weight.TokenWeight(weight, counted)")
    _check("token_weight", "weights", made.weight, (1, _TOKENS))
    if bool((made.weight < 0).any()):
        raise _refused("token_weight", "weights below 0, which would turn an advantage's sign; clamp them")
    counted: Any = made.counted
    if not isinstance(counted, Tensor) or counted.dtype != torch.bool or counted.shape != (_TOKENS,):
        raise _refused("token_weight", "counted that is no mask of the tokens; return a tensor of bool")
    if made.penalty is not None:
        _check("token_weight", "penalties", made.penalty, (_TOKENS,))


def _try_correction(algorithm: Algorithm) -> None:
    """Of tokens that the trainer finds as likely as the engine, less likely and likelier."""
    mismatch = torch.linspace(-0.5, 0.5, _TOKENS)
    correction = _called("correction", lambda: algorithm.correction(mismatch, _LENGTHS), mismatch=mismatch)
    if not isinstance(correction, Correction):
        made = type(correction).__name__
        raise _refused("correction", f"a {made}; return a ngrpo.algo.correction.Correction(weight, bounded)")
    _check("correction", "weights", correction.weight, (_TOKENS,))
    bounded: Any = correction.bounded
    if not isinstance(bounded, Tensor) or bounded.dtype != torch.bool or bounded.shape != (_TOKENS,):
        raise _refused("correction", "bounded that is no mask of the tokens; return a tensor of bool")


def _try_clip(algorithm: Algorithm, log_ratio: Tensor, advantages: Tensor, log_prob: Tensor) -> None:
    surrogate = _called("clip", lambda: algorithm.surrogate(log_ratio, advantages, log_prob), advantages=advantages)
    if not isinstance(surrogate, Surrogate):
        raise _refused("clip", f"a {type(surrogate).__name__}; return a ngrpo.algo.clip.Surrogate(loss, clipped)")
    _check("clip", "a loss", surrogate.loss, (2, _TOKENS), gradient=True)
    clipped: Any = surrogate.clipped
    if not isinstance(clipped, Tensor) or clipped.dtype != torch.bool or clipped.shape != surrogate.loss.shape:
        raise _refused("clip", "clipped that is no mask of the loss's shape; return a tensor of bool")
    if surrogate.penalty is not None:
        _check("clip", "penalties", surrogate.penalty, (_TOKENS,))


def _called(name: str, call: Callable[[], Any], **given: Tensor) -> Any:
    """Returns what a part makes of tensors, which it must not change: others get the same ones."""
    written = watch(given)
    made = called_on_trial(f"algo.{name}", call)
    if names := written():
        raise SettingError(
            f"algo.{name} writes into the {names[0]} that it is given, which others go on with; make a new tensor, "
            "such as x - y instead of x -= y (a trial call)."
        )
    return made


def _check(
    name: str, what: str, value: Any, shape: tuple[int, ...], gradient: bool = False, finite: bool = True
) -> None:
    if not isinstance(value, Tensor):
        raise _refused(name, f"a {type(value).__name__}; return a tensor of shape {list(shape)}")
    if tuple(value.shape) != shape:
        raise _refused(name, f"{what} of shape {list(value.shape)} instead of {list(shape)}; keep the shape")
    if not value.is_floating_point():
        raise _refused(name, f"{what} of dtype {value.dtype}; return floating-point numbers")
    if finite and not bool(value.isfinite().all()):
        raise _refused(name, f"{what} that are not finite; guard its logarithms and divisions")
    if gradient and not value.requires_grad:
        raise _refused(name, f"{what} without a gradient to the log-probs; take out detach, item or no_grad")


def _refused(name: str, fault: str) -> SettingError:
    return SettingError(f"algo.{name} returned {fault} (a trial call).")
