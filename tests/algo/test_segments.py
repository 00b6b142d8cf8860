import torch

from ngrpo.algo.segments import per_sequence_mean, sequence_index


def test_sequence_index_repeats_each_row_number_by_its_length() -> None:
    lengths = torch.tensor([2, 0, 3])
    assert sequence_index(lengths).tolist() == [0, 0, 2, 2, 2]
    assert sequence_index(lengths, 5).tolist() == [0, 0, 2, 2, 2]


def test_per_sequence_mean_equals_a_loop_over_slices() -> None:
    lengths = torch.tensor([4, 1, 7])
    values = torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    slow = torch.stack([part.mean() for part in values.split(lengths.tolist())])
    torch.testing.assert_close(per_sequence_mean(values, lengths), slow)


def test_per_sequence_mean_of_no_tokens_is_zero() -> None:
    mean = per_sequence_mean(torch.tensor([3.0, 5.0]), torch.tensor([0, 2, 0]))
    assert mean.tolist() == [0.0, 4.0, 0.0]
