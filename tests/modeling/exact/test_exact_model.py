"""Which models and trainers are made exact."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from tiny_kinds import tiny
from torch import Tensor
from torch.nn.functional import silu, softplus
from transformers import LlamaConfig

from ngrpo.errors import SettingError
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.exact.calls import ExactCalls
from ngrpo.modeling.exact.linear import exact_linear
from ngrpo.modeling.exact.model import check_exact_model, is_exact, make_exact
from ngrpo.modeling.exact.number_by_number import UNEVEN
from ngrpo.modeling.loading import ModelSource
from ngrpo.training.models import ModelLoader
from ngrpo.training.update_settings import UpdateSettings


@pytest.mark.parametrize("exact", [True, False])
def test_policy_and_reference_are_exact_together(exact: bool, tiny_source: ModelSource) -> None:
    settings = UpdateSettings(exact=exact)
    models = ModelLoader(tiny_source, TokenSampling(), settings, torch.device("cpu"), None).load(True, True)
    assert models.reference is not None
    assert models.critic is not None
    assert is_exact(models.policy.lm) is is_exact(models.reference.lm) is exact
    assert not is_exact(models.critic.lm)


def test_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"rollout\.exact=true .* llama, mistral, qwen2, qwen3, .* type gemma2"):
        make_exact(tiny("gemma2", tmp_path).load())


def test_models_that_bring_code_of_their_own_are_refused() -> None:
    class Own(LlamaConfig):
        """Names a known type, as code that comes with a model may."""

    with pytest.raises(SettingError, match=r"is of type llama by code of its own; set rollout\.exact=false"):
        check_exact_model(Own())
    check_exact_model(LlamaConfig())


def test_activations_that_were_not_tried_are_refused(tmp_path: Path) -> None:
    config = tiny("llama", tmp_path).config()
    config.hidden_act = "quick_gelu"
    with pytest.raises(SettingError, match=r"activations gelu, .* hidden_act=quick_gelu .*; set rollout\.exact=false"):
        check_exact_model(config)


def test_a_strategys_linear_maps_are_exact_inside_the_context_only() -> None:
    inputs, weight = torch.randn(7, 50), torch.randn(9, 50)
    with ExactCalls():
        made = torch.nn.functional.linear(inputs, weight)
    assert torch.equal(made, exact_linear(inputs, weight))
    torch.testing.assert_close(made, torch.nn.functional.linear(inputs, weight))


def test_so_are_its_products_with_a_matrix() -> None:
    rows, matrix = torch.randn(7, 50), torch.randn(50, 9)
    with ExactCalls():
        made = [rows @ matrix, torch.mm(rows, matrix), rows.matmul(matrix), rows[None] @ matrix]
        alone = rows[3:4] @ matrix
        others = [rows[0] @ matrix, rows[:, None] @ rows[:, :, None], 2.0 * rows]
    for product in made:
        assert torch.equal(product.view(7, 9), exact_linear(rows, matrix.T))
    assert torch.equal(alone, made[0][3:4])
    expected = [rows[0] @ matrix, rows[:, None] @ rows[:, :, None], 2.0 * rows]
    assert all(map(torch.equal, others, expected))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", sorted(UNEVEN, key=lambda one: one.__qualname__), ids=lambda one: one.__qualname__)
def test_a_numbers_place_changes_no_function_of_it(
    function: Callable[[Tensor], Tensor], dtype: torch.dtype, threads: int, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(threads)
    numbers = (4 * torch.randn(100_003)).to(dtype)
    with ExactCalls():
        made = function(numbers)
        for start, count in ((0, 1), (1, 70), (5, 99_998), (70_001, 30_002)):
            assert torch.equal(function(numbers[start : start + count]), made[start : start + count])
    torch.testing.assert_close(made, function(numbers))


def test_its_gradient_is_the_functions_own() -> None:
    gradients = []
    for context in (ExactCalls(), nullcontext()):
        numbers = torch.linspace(-3, 3, 21).requires_grad_()
        with context:
            made = silu(numbers).sum() + softplus(numbers, 2.0, threshold=1.0).sum()
        gradients += torch.autograd.grad(made, numbers)
    assert torch.equal(*gradients)
