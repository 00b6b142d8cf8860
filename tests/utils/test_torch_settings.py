"""Settings of the whole process."""

from collections.abc import Iterator

import pytest
import torch

from ngrpo.errors import SettingError
from ngrpo.utils.torch_settings import MATMUL_PRECISIONS, set_torch


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("precision", MATMUL_PRECISIONS)
def test_both_are_set(precision: str):
    set_torch(2, precision)
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (2, precision)


def test_threads_may_be_left_as_they_are():
    threads = torch.get_num_threads()
    set_torch(None, "highest")
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("threads", "precision"), [(0, "highest"), (1, "tf32")])
def test_what_cannot_be_is_refused_before_anything_is_set(threads: int, precision: str):
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    with pytest.raises(SettingError, match=r"trainer\.(threads=0|matmul_precision=tf32)"):
        set_torch(threads, precision)
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == before
