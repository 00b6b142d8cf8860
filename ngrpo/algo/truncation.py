"""Exclusion of responses that were cut off at the length limit (DAPO's overlong filtering)."""

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
