from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from ngrpo.data.word_problems.levels import harder
from ngrpo.demo_model.lessons import WordProblemLessons
from ngrpo.demo_model.measuring import Measured, measure
from ngrpo.demo_model.pretraining import SORTED, Batch, adapt, batches, loss, make_model, pretrain
from ngrpo.demo_model.pretraining_text import Example, example
from ngrpo.demo_model.recipe import ADAPTED, LARGE, SMALL, Shape
from ngrpo.errors import SettingError
from ngrpo.modeling.loading import MODEL_PATH
from ngrpo.types.problems import Problem

HARD = harder(2, 6)
TINY = replace(LARGE, shape=Shape(32, 64, 1, 2, 1), batch=4, warmup=2)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(MODEL_PATH)


def test_worker_processes_make_the_same_batches(tokenizer: PreTrainedTokenizerFast) -> None:
    here, there = (list(batches(tokenizer, TINY, 20, workers)) for workers in (0, 2))
    assert len(here) == len(there) == 20
    for one, other in zip(here, there, strict=True):
        assert torch.equal(one.ids, other.ids)
        assert torch.equal(one.prompts, other.prompts)


def test_batches_are_of_like_length_and_hold_every_example_once(tokenizer: PreTrainedTokenizerFast) -> None:
    made = list(batches(tokenizer, TINY, SORTED, 0))
    texts = [batch.ids[i, : batch.lengths[i]].tolist() for batch in made for i in range(4)]
    drawn = [example(key, tokenizer, TINY.lessons).ids for key in range(4 * SORTED)]
    assert sorted(texts) == sorted(drawn)
    by_batch = sorted((int(batch.lengths.min()), int(batch.lengths.max())) for batch in made)
    assert all(before[1] <= after[0] for before, after in zip(by_batch, by_batch[1:], strict=False))


def test_shares_change_for_the_last_part(tokenizer: PreTrainedTokenizerFast) -> None:
    every = range(2, 7)
    lessons = WordProblemLessons(HARD, learn=dict.fromkeys(every, 1.0), settle=dict.fromkeys(every, 0.0))
    recipe = replace(TINY, lessons=lessons)
    made = list(batches(tokenizer, recipe, 10 * SORTED, 0))
    lengths = torch.stack([batch.lengths - batch.prompts for batch in made])
    assert lengths[: 8 * SORTED].min() > lengths[8 * SORTED :].max()


def test_large_recipe_writes_both_orders_and_the_small_one_draws_as_before(tokenizer: PreTrainedTokenizerFast) -> None:
    shares = dict.fromkeys(range(2, 7), 1.0)
    plain, mixed = (
        [example(key, tokenizer, WordProblemLessons(HARD, shares, shares, share)).ids for key in range(200)]
        for share in (0.0, 0.25)
    )
    # Some stories have one order only.
    assert 10 < sum(one != other for one, other in zip(plain, mixed, strict=True)) < 200
    text = tokenizer.decode(example(2, tokenizer, SMALL.lessons).ids)
    assert text == tokenizer.decode(tokenizer(text).input_ids)


def test_loss_is_that_of_the_response_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    model = make_model(tokenizer, TINY)
    texts = [Example([5, 6, 7, 8, 9], 2), Example([9, 8, 7], 1)]
    values = []
    for text in texts:
        logits = model(torch.tensor([text.ids])).logits[0]
        values += [
            cross_entropy(logits[at - 1], torch.tensor(text.ids[at])) for at in range(text.prompt, len(text.ids))
        ]
    assert loss(model, Batch.of(texts)).item() == pytest.approx(torch.stack(values).mean().item(), rel=1e-5)


def test_training_lowers_the_loss_and_clears_unseen_rows(tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    model = make_model(tokenizer, TINY)
    lines: list[str] = []
    pretrain(model, tokenizer, replace(TINY, peak_rate=1e-2), 200, report=lines.append)
    losses = [float(line.split()[3]) for line in lines]
    assert len(losses) == 2
    assert losses[1] < 0.7 * losses[0]
    rows = model.model.embed_tokens.weight.norm(dim=-1)
    assert rows[len(tokenizer) :].max() == 0.0
    assert rows[tokenizer(" apples").input_ids].min() > 0


def test_measured_by_style_and_steps() -> None:
    right = torch.tensor([[True, False], [False, False]])
    found = Measured(torch.tensor([2, 3]), right, torch.tensor([[True, False], [True, False]]))
    assert found.lines() == [
        "all problems: Mean@1 0.250  Pass@2 0.500  (2 problems)",
        "2 steps: Mean@1 0.500  Pass@2 1.000  (1 problems)",
        "3 steps: Mean@1 0.000  Pass@2 0.000  (1 problems)",
        "stepped: 0.500 of responses, 0.500 of them right",
        "direct: 0.500 of responses, 0.000 of them right",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1+2=3\n</think>\n\\boxed{3}", True), ("1+2=3\n\\boxed{3}", False), ("</think>\\boxed{3} or 4", False)],
)
def test_an_answer_counts_once_the_reasoning_is_closed(text: str, expected: bool) -> None:
    assert SMALL.lessons.is_right(text, Problem(0, "1 and 2?", "3")) == expected


def test_shipped_model_measures_as_it_should() -> None:
    found = measure(MODEL_PATH, SMALL.lessons, 64, 20, 8, torch.device("cpu"))
    assert found.right.shape == (20, 8)
    assert 0.2 < found.right.double().mean() < 0.6


def test_an_adapted_model_keeps_its_rows_and_gets_the_marks(tiny_model_path: Path, tmp_path: Path) -> None:
    before = AutoModelForCausalLM.from_pretrained(tiny_model_path).get_input_embeddings().weight.detach()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tiny_model_path)
    tokenizer.save_pretrained(tmp_path)
    model, adapted = adapt(str(tiny_model_path))
    for mark in ("<think>", "</think>"):
        assert len(adapted(mark).input_ids) == 1
    assert adapted.apply_chat_template(
        [{"role": "user", "content": "a"}], tokenize=False, add_generation_prompt=True
    ) == ("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n")
    rows = model.get_input_embeddings().weight
    assert len(rows) % 64 == 0
    assert torch.equal(rows[: len(tokenizer)], before[: len(tokenizer)])
    pretrain(model, adapted, replace(ADAPTED, batch=2, peak_rate=1e-9), 4)
    assert torch.allclose(rows[: len(tokenizer)], before[: len(tokenizer)], atol=1e-6)


def test_a_model_with_other_turns_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    other = PreTrainedTokenizerFast.from_pretrained(MODEL_PATH, eos_token="<|endoftext|>")
    other.save_pretrained(tmp_path)
    make_model(tokenizer, TINY).save_pretrained(tmp_path)
    with pytest.raises(SettingError, match="ends its turns with"):
        adapt(str(tmp_path))
