"""The pretraining of a demo model from its recipe."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from tokenizers import AddedToken
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from ngrpo.demo_model.pretraining_text import Example, example
from ngrpo.demo_model.recipe import Recipe
from ngrpo.demo_model.tokenizer import CHAT_TEMPLATE, END, END_THINK, THINK
from ngrpo.errors import SettingError
from ngrpo.modeling.loading import ModelSource

SORTED = 8  # batches drawn at once and cut by length, to pad little
SHOWN_EVERY = 100

Report = Callable[[str], None]


@dataclass(frozen=True)
class Batch:
    """Examples of like length.

    Attributes:
        ids: int64 [B, T]; padding follows the text, where causal attention never looks.
        prompts: tokens of each prompt; int64 [B].
        lengths: tokens of each text; int64 [B].
    """

    ids: Tensor
    prompts: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, texts: Sequence[Example]) -> "Batch":
        """Pads."""
        ids = pad_sequence([torch.tensor(text.ids) for text in texts], batch_first=True)
        prompts = torch.tensor([text.prompt for text in texts])
        return cls(ids, prompts, torch.tensor([len(text.ids) for text in texts]))

    def to(self, device: torch.device) -> "Batch":
        """Moves it."""
        return Batch(*(part.to(device, non_blocking=True) for part in (self.ids, self.prompts, self.lengths)))

    @property
    def positions(self) -> Tensor:
        """Returns 0, 1 ... T - 1; int64 [T]."""
        return torch.arange(self.ids.shape[1], device=self.ids.device)


class Drawn(Dataset[list[Batch]]):
    """`SORTED` batches an item, a function of the item's number alone.

    Args:
        tokenizer: the demo's.
        recipe: says what is drawn.
        steps: optimiser steps, a batch each.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, recipe: Recipe, steps: int) -> None:
        self.tokenizer = tokenizer
        self.recipe = recipe
        self.steps = steps

    def __len__(self) -> int:
        return -(-self.steps // SORTED)

    def __getitem__(self, item: int) -> list[Batch]:
        first, recipe = item * SORTED, self.recipe
        settled = first >= (1 - recipe.settle_part) * self.steps
        size, last = recipe.batch, min(first + SORTED, self.steps)
        drawn = [example(key, self.tokenizer, recipe.lessons, settled) for key in range(first * size, last * size)]
        drawn.sort(key=lambda text: len(text.ids))
        cut = [drawn[start : start + size] for start in range(0, len(drawn), size)]
        random.Random(first).shuffle(cut)
        return [Batch.of(texts) for texts in cut]


def batches(tokenizer: PreTrainedTokenizerFast, recipe: Recipe, steps: int, workers: int) -> Iterator[Batch]:
    """Yields a batch for each optimiser step; the same ones whatever the number of worker processes."""
    drawn = Drawn(tokenizer, recipe, steps)
    ahead = {"prefetch_factor": 4, "multiprocessing_context": "forkserver"} if workers else {}
    loader = DataLoader(drawn, batch_size=None, num_workers=workers, **ahead)  # type: ignore[arg-type]
    for item in loader:
        yield from item


def make_model(tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> Qwen2ForCausalLM:
    """An untrained model with a row of embeddings for every id, up to a multiple of 64 rows."""
    shape = recipe.shape
    assert shape is not None
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype="float32",
    )
    return Qwen2ForCausalLM(config)


def adapt(base: str) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A pretrained model and its tokenizer, with the demo's chat template and single ids for its reasoning marks.

    Args:
        base: folder or hub name of a model whose turns end with ``<|im_end|>``.

    Raises:
        SettingError: they end otherwise, or there is no such model.
    """
    source = ModelSource(base)
    source.config()
    tokenizer = source.tokenizer()
    if tokenizer.convert_tokens_to_ids(END) != tokenizer.eos_token_id:
        raise SettingError(f"--base {base} ends its turns with {tokenizer.eos_token}; choose a model with {END}.")
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in (THINK, END_THINK)])
    tokenizer.chat_template = CHAT_TEMPLATE
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)
    return model, tokenizer


def loss(model: PreTrainedModel, batch: Batch) -> Tensor:
    """Mean cross-entropy (nats) of the response tokens; in bfloat16 on a GPU."""
    positions = batch.positions[1:]
    predicted = (positions >= batch.prompts[:, None]) & (positions < batch.lengths[:, None])
    on_gpu = batch.ids.device.type == "cuda"
    with torch.autocast(batch.ids.device.type, torch.bfloat16, enabled=on_gpu):
        hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state[:, :-1]
        logits = model.lm_head(hidden[predicted])
    return cross_entropy(logits.float(), batch.ids[:, 1:][predicted])


def make_optimizer(model: PreTrainedModel, peak_rate: float) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only."""
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=peak_rate, betas=(0.9, 0.98))


def pretrain(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    recipe: Recipe,
    steps: int,
    workers: int = 0,
    report: Report = print,
) -> None:
    """Trains on fresh problems of the train split, on the device that the model is on.

    Args:
        model: trained in place.
        tokenizer: the demo's.
        recipe: what is trained on, and how.
        steps: optimiser steps; fewer than the recipe's shorten both parts.
        workers: processes that make batches; 0 makes them here.
        report: gets a line every `SHOWN_EVERY` steps.
    """
    device = next(model.parameters()).device
    optimizer = make_optimizer(model, recipe.peak_rate)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / recipe.warmup, 1.02 - step / steps)
    )
    seen = torch.zeros(model.config.vocab_size, dtype=torch.bool, device=device)
    began, total = time.monotonic(), torch.zeros((), device=device)
    for step, drawn in enumerate(batches(tokenizer, recipe, steps, workers), start=1):
        batch = drawn.to(device)
        value = loss(model, batch)
        seen[batch.ids[batch.positions < batch.lengths[:, None]]] = True
        optimizer.zero_grad()
        torch.autograd.backward(value)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        total += value.detach()  # read seldom, so that a GPU is not waited for
        if step % SHOWN_EVERY == 0:
            mean = float(total) / SHOWN_EVERY
            report(f"step {step}/{steps}  loss {mean:z.4f}  {time.monotonic() - began:z.0f} s")
            total.zero_()
    if recipe.shape is None:
        return
    # A row that was never an input says nothing: as zeros it cannot pass for the neighbour of a real one.
    with torch.no_grad():
        model.model.embed_tokens.weight[~seen] = 0.0
