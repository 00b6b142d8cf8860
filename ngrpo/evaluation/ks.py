"""Which k of Pass@k are reported."""


def powers_of_two(limit: int) -> tuple[int, ...]:
    """Returns 1, 2, 4, ... up to ``limit``, and ``limit`` itself."""
    ks = [1 << i for i in range(limit.bit_length())]
    return tuple(ks if ks[-1] == limit else [*ks, limit])
