"""Which tokens the truncation mask leaves out."""

import torch

from ngrpo.algo.credit import Credited
from ngrpo.algo.truncation import without_truncated


def test_every_token_of_a_truncated_response_and_no_other():
    lengths = torch.tensor([2, 1, 3])
    credited = Credited(torch.arange(12.0).view(2, 6), torch.ones(6))
    found = without_truncated(credited, torch.tensor([False, True, True]), lengths)
    assert found.advantages.isnan().tolist() == [[False, False, True, True, True, True]] * 2
    assert found.advantages[:, :2].tolist() == [[0.0, 1.0], [6.0, 7.0]]
    assert found.returns is credited.returns
    assert without_truncated(credited, torch.zeros(3, dtype=torch.bool), lengths).advantages.equal(credited.advantages)
