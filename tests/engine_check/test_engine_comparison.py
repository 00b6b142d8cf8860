"""Limits of the comparison: exact in float32, by the model's own rounding in coarser numbers and at near ties."""

import pytest
import torch
from torch import Tensor

from ngrpo.engine_check.comparison import Finding, decisions, scores, worst
from ngrpo.engine_check.own_decisions import Expected
from ngrpo.model_check.comparison import Numbers
from ngrpo.model_check.tolerances import Deviation
from ngrpo.types.records import Step

FLOAT, COARSE = Numbers(torch.float32), Numbers(torch.bfloat16)
N = 400


def step(token: Tensor, weight: float = 0.5) -> Step:
    ids = torch.stack([token, token + 1], -1)
    weights = torch.tensor([weight, 1 - weight]).expand(len(token), 2)
    return Step(token, torch.ones(len(token), dtype=torch.bool), ids, weights)


def expected(ties: int = 0, noise: float = 0.0) -> Expected:
    """Positions whose token another rounding changes, and log-probs that it moves."""
    own = torch.arange(N)
    varied = own.clone()
    varied[:ties] += 1
    log_probs = torch.linspace(-3, -1, N)
    return Expected(step(own), [step(varied), step(own)], log_probs, (log_probs + noise)[None])


def made(differing: int, weight: float = 0.5) -> Step:
    token = torch.arange(N)
    token[N - differing :] += 1
    return step(token, weight)


def excessive(recorded: Step, of: Expected, numbers: Numbers) -> set[str]:
    return {what for what, one in decisions(recorded, of, numbers) if one.excessive}


def test_one_token_is_too_many_in_float32_unless_one_is_nearly_a_tie():
    assert excessive(made(0), expected(), FLOAT) == set()
    assert "tokens" in excessive(made(1), expected(), FLOAT)
    assert "tokens" not in excessive(made(1), expected(ties=1), FLOAT)
    assert "tokens" in excessive(made(3), expected(ties=1), FLOAT)


def test_a_hundredth_may_differ_in_coarse_numbers():
    assert "tokens" not in excessive(made(N // 100), expected(), COARSE)
    assert "tokens" in excessive(made(N // 50), expected(), COARSE)
    assert "tokens" in excessive(made(2), expected(), FLOAT)
    assert "tokens" not in excessive(made(2), expected(), Numbers(torch.float32, tf32=True))


@pytest.mark.parametrize("positions", [30, 200])
def test_three_near_ties_are_allowed_where_a_hundredth_is_less(positions: int):
    """float16 meets them so seldom that variations of the logits may meet none."""
    right = torch.arange(positions)

    def differing(number: int) -> bool:
        other = right.clone()
        other[:number] += 1
        same = step(right, 1.0)
        of = Expected(same, [same], torch.zeros(positions), torch.zeros(1, positions))
        return "mixtures" in excessive(step(other, 1.0), of, Numbers(torch.float16))

    assert not differing(3)
    assert differing(4)


@pytest.mark.parametrize(("numbers", "right", "wrong"), [(FLOAT, 2e-5, 1e-4), (COARSE, 2e-3, 1e-2)])
def test_weights_may_differ_by_the_rounding(numbers: Numbers, right: float, wrong: float):
    assert excessive(made(0, 0.5 + right), expected(), numbers) == set()
    assert excessive(made(0, 0.5 + wrong), expected(), numbers) == {"mixtures"}


def test_flags_and_tokens_have_no_mixtures_where_nothing_is_mixed():
    plain = Step.plain(torch.arange(N))
    of = Expected(plain, [plain], torch.zeros(N), torch.zeros(1, N))
    assert [what for what, _ in decisions(plain, of, FLOAT)] == ["tokens", "mixed flags"]


def deviating(off: float, numbers: Numbers, noise: float = 0.02, plain: float = 0.02) -> set[str]:
    of = expected(noise=noise)
    explored = torch.arange(N) % 2 == 0
    log_probs = of.scores + torch.where(explored, off, plain)
    return {kind for kind, one in scores(log_probs, of, explored, False, numbers).items() if one.excessive}


def test_log_probs_of_explored_rollouts_must_be_as_exact_as_plain_ones_in_coarse_numbers():
    assert deviating(0.03, COARSE) == set()
    assert deviating(0.05, COARSE) == {"explored"}  # within three times the rounding, not within twice the plain ones'
    assert deviating(0.05, COARSE, plain=0.03) == set()
    assert deviating(0.07, COARSE, plain=0.07) == {"plain", "explored"}
    assert deviating(5e-5, FLOAT, noise=0.0, plain=5e-5) == set()
    assert deviating(2e-4, FLOAT, noise=0.0, plain=5e-5) == {"explored"}


def test_densities_have_a_limit_of_their_own():
    of, explored = expected(), torch.ones(N, dtype=torch.bool)
    assert not scores(of.scores + 1e-3, of, explored, True, FLOAT)["explored"].excessive
    assert scores(of.scores + 1e-3, of, explored, False, FLOAT)["explored"].excessive


def test_the_worst_is_told_with_its_figures():
    right = Finding("rollouts", "tokens", FLOAT, Deviation(0.0, 0.0, 1e-4, torch.inf, 9))
    small = Finding("rollouts", "tokens", FLOAT, Deviation(2e-4, 1.0, 1e-4, torch.inf, 9))
    large = Finding("rollouts", "log-probs", FLOAT, Deviation(0.2, 0.5, 1e-4, 1e-4, 8))
    hidden = Finding("rollouts", "log-probs", COARSE, Deviation(0.02, 0.1, 0.03, 0.2, 8), nearer="no mixtures")
    assert worst([right]) is None
    assert worst([right, small]) is small
    assert worst([small, large, hidden]) is large
    assert worst([right, hidden]) is hidden
    assert str(large) == (
        "log-probs of rollouts differ by 0.2 on average and 0.5 at most at 8 positions, "
        "where rounding to float32 allows 0.0001 on average and 0.0001 at each"
    )
    assert str(hidden).endswith(
        "where rounding to bfloat16 allows 0.03 on average and 0.2 at each, and are nearer to those of no mixtures"
    )
    assert "0.0001 on average" in str(small)
    assert "inf" not in str(small)
