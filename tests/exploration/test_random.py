"""The hash against Python integers, and its statistics."""

import random
import zlib

import pytest
import torch
from torch import Tensor

from ngrpo.exploration.random import fraction, gumbel, gumbel_of, normal, request_key, stream_id, uniform

LOW = 2**32


def rounds(state: int) -> int:
    for _ in range(2):
        state = ((state >> 16) ^ state) * 0x45D9F3B % LOW
    return (state >> 16) ^ state


def slow_uniform(key: int, position: int, stream: str, index: int) -> float:
    state = rounds(key % LOW ^ zlib.crc32(stream.encode()))
    state = rounds(state ^ key // LOW % LOW)
    state = rounds((state + position * 0x9E3779B1) % LOW)
    state = rounds(state ^ key % LOW)
    state = rounds((state + rounds(index % LOW)) % LOW)
    return min(torch.tensor((state + 0.5) / 2**32, dtype=torch.float64).float().item(), 1 - 2**-24)


def draws(keys: Tensor, positions: Tensor, stream: str = "gate", index: Tensor | int = 0) -> Tensor:
    return uniform(keys, positions, stream, index).double().flatten()


def chi_square_16(values: Tensor) -> float:
    counts = torch.bincount((values * 16).long(), minlength=16).double()
    expected = len(values) / 16
    return float(((counts - expected).square() / expected).sum())


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


KEYS = torch.tensor([request_key(3, 0, 1, sample) for sample in range(400)])
SLOTS = torch.arange(500)
# 99.9th percentile of chi-square with 15 degrees of freedom.
CHI_SQUARE_15 = 37.7


@pytest.mark.parametrize("stream", ["gate", "token", "noise"])
def test_hash_equals_integer_arithmetic(stream: str) -> None:
    pick = random.Random(0)
    keys = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1] + [pick.getrandbits(63) for _ in range(500)]
    positions = [0, 1, 2**31 - 1] + [pick.randrange(2**17) for _ in range(503)]
    indices = [0, 1, 2**31] + [pick.randrange(2**18) for _ in range(503)]
    found = uniform(torch.tensor(keys), torch.tensor(positions), stream, torch.tensor(indices))
    expected = [slow_uniform(*args) for args in zip(keys, positions, [stream] * 506, indices, strict=True)]
    assert found.tolist() == expected
    plain = uniform(torch.tensor(keys), torch.tensor(positions), stream)
    assert plain.tolist() == [slow_uniform(k, p, stream, 0) for k, p in zip(keys, positions, strict=True)]


def test_draws_broadcast_and_do_not_depend_on_the_batch() -> None:
    table = uniform(KEYS[:5, None], SLOTS[None, :7], "token")
    assert table.shape == (5, 7)
    for row in range(5):
        for column in range(7):
            alone = uniform(KEYS[row : row + 1], SLOTS[column : column + 1], "token")
            assert alone.item() == table[row, column].item()


def test_fractions_are_fine_near_zero_and_stay_below_one() -> None:
    bits = torch.tensor([0, 1, 2, 2**23, 2**31 - 1, -(2**31), -2, -1], dtype=torch.int32)
    exact = [min((number % LOW + 0.5) / 2**32, 1 - 2**-24) for number in bits.tolist()]
    assert fraction(bits).tolist() == torch.tensor(exact, dtype=torch.float64).float().tolist()
    assert fraction(bits)[:3].double().tolist() == [2**-33, 3 * 2**-33, 5 * 2**-33]
    assert 0 < uniform(KEYS[:, None], SLOTS, "gate").min() < uniform(KEYS[:, None], SLOTS, "gate").max() < 1


@pytest.mark.parametrize("rate", [2**-31, 1e-8, 1e-6, 1e-3])
def test_a_small_rate_is_met_as_often_as_it_says(rate: float) -> None:
    """Counted over the grid itself: the values below are those of the first bits."""
    below, above = 0, 2**31
    while above - below > 1:
        middle = (below + above) // 2
        hit = bool(fraction(torch.tensor([middle], dtype=torch.int32)) < rate)
        below, above = (middle, above) if hit else (below, middle)
    assert above / 2**32 == pytest.approx(rate, rel=1e-5, abs=2**-33)


def test_the_smallest_draws_of_many_come_as_often_as_they_should() -> None:
    """2^24 draws of 64 requests: the lowest bits are as good as the highest."""
    values = uniform(KEYS[:64, None], SLOTS[:1], "token", torch.arange(2**18)[None, :])
    for power in (12, 16, 20):
        expected = 2.0 ** (24 - power)
        assert abs(int((values < 2.0**-power).sum()) - expected) < 4 * expected**0.5


@pytest.mark.parametrize(("mass", "tokens"), [(0.001, 151_935), (1e-4, 151_935), (0.5, 2**20)])
def test_a_flat_tail_is_drawn_as_often_as_its_probability_says(mass: float, tokens: int) -> None:
    """One head token against a tail of equal ones: the chance that a tail token is the largest, by integration.

    Exact but for the quadrature: a tail token's draw beats t with the share of the 2^32 fractions whose Gumbel does.
    """
    quantiles = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    head = -(-quantiles.log()).log() + torch.tensor(1 - mass, dtype=torch.float64).log()
    thresholds = head - torch.tensor(mass / tokens, dtype=torch.float64).log()
    beaten = share_above(thresholds)
    drawn = float((1 - (tokens * torch.log1p(-beaten)).exp()).mean())
    assert drawn == pytest.approx(mass, rel=0.01)


def share_above(thresholds: Tensor) -> Tensor:
    """Returns the share of the 32-bit numbers whose Gumbel draw is above each threshold, by bisection; float64."""
    below, above = torch.full_like(thresholds, -1.0), torch.full_like(thresholds, 2.0**32)
    for _ in range(34):
        middle = ((below + above) / 2).floor()
        bits = (middle.long() - ((middle.long() >> 31) << 32)).int()
        inside = (gumbel_of(fraction(bits)).double() > thresholds) & (middle >= 0)
        below, above = torch.where(inside, middle, below), torch.where(inside, above, middle)
    return (below + 1) / 2**32


def test_mean_and_variance() -> None:
    values = draws(KEYS[:, None], SLOTS)
    # Five standard errors for 200 000 draws.
    assert float(values.mean()) == pytest.approx(1 / 2, abs=5 * (1 / 12 / len(values)) ** 0.5)
    assert float(values.var()) == pytest.approx(1 / 12, abs=5 * (1 / 180 / len(values)) ** 0.5)


@pytest.mark.parametrize("stream", ["gate", "token"])
def test_sixteen_bins_over_positions_keys_and_indices(stream: str) -> None:
    one_key, one_slot = KEYS[:1], SLOTS[100:101]
    many = torch.arange(20_000)
    assert chi_square_16(draws(one_key, many, stream)) < CHI_SQUARE_15
    assert chi_square_16(draws(many, one_slot, stream)) < CHI_SQUARE_15
    assert chi_square_16(draws(torch.arange(20_000) << 32, one_slot, stream)) < CHI_SQUARE_15
    assert chi_square_16(draws(one_key, one_slot, stream, many)) < CHI_SQUARE_15
    assert chi_square_16(draws(KEYS[:, None], SLOTS, stream)) < CHI_SQUARE_15


def test_streams_and_neighbours_are_uncorrelated() -> None:
    keys = KEYS[:, None]
    base = draws(keys, SLOTS)
    others = {
        "stream": draws(keys, SLOTS, "token"),
        "next position": draws(keys, SLOTS + 1),
        "next index": draws(keys, SLOTS, "gate", 1),
        "next key": draws(keys + 1, SLOTS),
    }
    limit = 5 / len(base) ** 0.5
    assert {name: value for name, other in others.items() if abs(value := correlation(base, other)) > limit} == {}


def test_stream_id_is_stable() -> None:
    assert (stream_id("gate"), stream_id("token")) == (3_089_864_852 - 2**32, 1_597_481_275)


def test_request_key_is_stable_and_fits_63_bits() -> None:
    assert request_key(0) == 4_761_921_975_702_974_394
    assert request_key(7, 0, 3, 2) == 6_601_533_460_111_998_529
    assert all(0 <= request_key(seed, 1, 2, 3) < 2**63 for seed in range(1000))


def test_request_key_differs_by_each_part() -> None:
    made = [request_key(*parts) for parts in [(1,), (1, 1), (1, 1, 1), (11, 1), (1, 11), (-1, 1), (1, -1)]]
    made += [request_key(a, b, c, d) for a in range(3) for b in range(4) for c in range(5) for d in range(6)]
    assert len(set(made)) == len(made)


def test_gumbel_is_finite_and_follows_its_distribution() -> None:
    values = gumbel(KEYS[:, None], SLOTS, "token").double().flatten()
    assert values.isfinite().all()
    assert abs(float(values.mean()) - 0.5772) < 0.01
    assert abs(float(values.var()) - torch.pi**2 / 6) < 0.03
    assert chi_square_16((-(-values).exp()).exp().clamp(max=1 - 1e-9)) < CHI_SQUARE_15


def test_normal_draws_are_normal_and_independent_between_dimensions_rows_and_positions():
    keys = torch.tensor([request_key(0, i) for i in range(200)])[:, None, None]
    positions, index = torch.arange(20)[None, :, None], torch.arange(50)[None, None, :]
    draws = normal(keys, positions, "noise", index).double()
    assert draws.shape == (200, 20, 50)
    flat = draws.flatten()
    count = flat.numel() ** 0.5
    assert abs(float(flat.mean())) < 4 / count
    assert abs(float(flat.square().mean()) - 1) < 4 * 2**0.5 / count
    assert abs(float(flat.pow(4).mean()) - 3) < 4 * 96**0.5 / count
    assert abs(float((flat.abs() > 3).double().mean()) - 0.0026998) < 4 * 0.0027**0.5 / count
    for shifted in (draws.roll(1, 0), draws.roll(1, 1), draws.roll(1, 2)):
        assert abs(float((draws * shifted).mean())) < 4 / count
        assert abs(float((draws.square() * shifted.square()).mean()) - 1) < 4 * 8**0.5 / count
    assert bool(draws.isfinite().all())


def test_a_normal_draw_depends_on_its_own_counters_only():
    keys, positions = torch.tensor([[3], [9]]), torch.tensor([[5], [6]])
    table = normal(keys, positions, "noise", torch.arange(7)[None])
    alone = normal(torch.tensor(9), torch.tensor(6), "noise", 4)
    assert table[1, 4].item() == alone.item()
    assert normal(torch.tensor(9), torch.tensor(6), "other", 4).item() != alone.item()
