"""Responses that were cut off at the length limit: excluded (DAPO's overlong filtering), or without an advantage."""

import math

from torch import Tensor

from ngrpo.algo.credit import Credited
from ngrpo.algo.segments import sequence_index


def without_truncated(credited: Credited, truncated: Tensor, lengths: Tensor) -> Credited:
    """Excludes truncated responses (DAPO, arXiv 2503.14476, section 3.4).

    To be called last: the statistics of a group, and a critic's returns, are those of all its responses.

    Args:
        credited: the advantages of all tokens.
        truncated: bool [S].
        lengths: int64 [S].

    Returns:
        Advantages with NaN on every token of a truncated response; the returns as they were.
    """
    tokens = truncated[sequence_index(lengths)]
    return credited._replace(advantages=credited.advantages.masked_fill(tokens, math.nan))


def with_zeros(credited: Credited, silent: Tensor, lengths: Tensor) -> Credited:
    """Gives responses the advantage 0, by which they stay in the denominators.

    To be called after the credit, which may compare responses, or tokens of all of them: a 0 that it is handed would
    count as a reward, and what it makes of that is another number.

    Args:
        credited: the advantages of all tokens.
        silent: the responses; bool [S].
        lengths: int64 [S].

    Returns:
        Advantages with 0 on every token of these; the returns as they were.
    """
    tokens = silent[sequence_index(lengths)]
    return credited._replace(advantages=credited.advantages.masked_fill(tokens, 0.0))
