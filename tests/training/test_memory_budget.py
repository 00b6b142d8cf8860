"""A budget that is halved when memory runs out."""

import pytest
import torch

from ngrpo.errors import RunError
from ngrpo.training.memory_budget import MemoryBudget


class Exhausted:
    """Fails above a number of tokens, and says how often it was asked with how many."""

    def __init__(self, budget: MemoryBudget, room: int, error: Exception) -> None:
        self.budget, self.room, self.error = budget, room, error
        self.asked: list[int] = []
        self.cleared = 0

    def work(self) -> str:
        self.asked.append(self.budget.tokens)
        if self.budget.tokens > self.room:
            raise self.error
        return "done"

    def clear(self) -> None:
        self.cleared += 1


OUT = [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("[...] DefaultCPUAllocator: can't allocate memory")]


@pytest.mark.parametrize("error", OUT, ids=["gpu", "cpu"])
def test_the_budget_is_halved_until_it_fits_and_stays(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    budget = MemoryBudget(8192)
    work = Exhausted(budget, 2048, error)
    assert budget.fit(work.work, work.clear, longest=500, ranks=1) == "done"
    assert (work.asked, work.cleared, budget.tokens) == ([8192, 4096, 2048], 2, 2048)
    assert "training continues, with 4096 tokens a pass" in caplog.text


def test_what_cannot_be_halved_is_said() -> None:
    budget = MemoryBudget(8192)
    work = Exhausted(budget, 100, OUT[0])
    with pytest.raises(RunError, match=r"with one sequence of 3000 tokens at a time; lower rollout\.max_new_tokens"):
        budget.fit(work.work, work.clear, longest=3000, ranks=1)
    assert work.asked == [8192, 4096, 2048]
    with pytest.raises(
        RunError, match=r"with trainer\.microbatch_tokens=8192; resume with .*microbatch_tokens=4096\.$"
    ):
        MemoryBudget(8192).fit(Exhausted(MemoryBudget(8192), 1, OUT[0]).work, work.clear, longest=30, ranks=2)


def test_other_errors_pass() -> None:
    budget = MemoryBudget(8192)
    with pytest.raises(RuntimeError, match="shapes"):
        budget.fit(Exhausted(budget, 1, RuntimeError("shapes")).work, lambda: None, longest=30, ranks=1)
