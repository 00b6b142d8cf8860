"""The values of k for which Pass@k is reported."""

from collections.abc import Sequence

from ngrpo.errors import SettingError


def powers_of_two(limit: int) -> tuple[int, ...]:
    """Returns 1, 2, 4, ... up to ``limit``, and ``limit`` itself."""
    ks = [1 << i for i in range(limit.bit_length())]
    return tuple(ks if ks[-1] == limit else [*ks, limit])


def chosen_ks(ks: Sequence[int] | None, n: int) -> tuple[int, ...]:
    """Returns the k of a report in ascending order, 1 always among them; None for the powers of two.

    Raises:
        SettingError: there is no k, or one for which n samples are too few.
    """
    if ks is None:
        return powers_of_two(n)
    if not ks:
        raise SettingError("k=[] reports nothing; name some, such as k=[1,16], or set k=null.")
    wrong = [k for k in ks if not 1 <= k <= n]
    if wrong:
        raise SettingError(f"k={wrong[0]} has no unbiased Pass@k from n={n} samples; choose 1 <= k <= n, or raise n.")
    return tuple(sorted({1, *ks}))
