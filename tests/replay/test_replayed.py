"""Replay on models of transformers against the project's own scoring model, and against the sum written out."""

import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from made_models import VOCABULARY, tiny_config, tiny_model
from made_rollouts import rollout
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.replay import replay
from ngrpo.replay.hook import replayed
from ngrpo.replay.records import RecordTensors
from ngrpo.types.rollouts import Rollout

KINDS = ("qwen2", "qwen3", "llama", "gemma", "gemma3_text")
STRATEGY = NeighborMixing(k=2)


def made(seed: int = 0, count: int = 4) -> list[Rollout]:
    """Rollouts of several lengths, every third response token mixed, the last row not at all."""
    draw = random.Random(seed)

    def one(number: int) -> Rollout:
        prompt = [draw.randrange(3, VOCABULARY) for _ in range(draw.randrange(2, 6))]
        response = [draw.randrange(3, VOCABULARY) for _ in range(draw.randrange(4, 12))]
        slots = range(len(prompt), len(prompt) + len(response), 3) if number < count - 1 else ()
        mixed = {slot: dict(zip(draw.sample(range(3, VOCABULARY), 2), (0.7, 0.3), strict=True)) for slot in slots}
        return rollout(prompt, response, mixed, key=1000 + number)

    return [one(number) for number in range(count)]


def laid_out(rollouts: Sequence[Rollout], side: str) -> tuple[Tensor, Tensor]:
    """``input_ids`` and ``attention_mask`` with the padding at a side, or as in TRL: prompts left, responses right."""
    prompt, response = (max(len(getattr(r, name)) for r in rollouts) for name in ("prompt_ids", "response_ids"))
    width = prompt + response if side == "both" else max(r.tokens for r in rollouts)
    ids, mask = torch.zeros(2, len(rollouts), width, dtype=torch.long)
    for row, r in enumerate(rollouts):
        start = {"left": width - r.tokens, "right": 0, "both": prompt - len(r.prompt_ids)}[side]
        ids[row, start : start + r.tokens] = torch.cat((r.prompt_ids, r.response_ids))
        mask[row, start : start + r.tokens] = 1
    return ids, mask


def positions_of(mask: Tensor) -> Tensor:
    return (mask.cumsum(-1) - 1).clamp(min=0)


def scored(logits: Tensor, ids: Tensor, mask: Tensor, rollouts: Sequence[Rollout]) -> Tensor:
    """The log-probs of all response tokens, row after row."""
    found = logits.float().log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    rows = []
    for row, r in enumerate(rollouts):
        places = mask[row].nonzero()[:, 0][len(r.prompt_ids) :]
        rows.append(found[row, places - 1])
    return torch.cat(rows)


def own_scores(model: PreTrainedModel, rollouts: Sequence[Rollout]) -> tuple[Tensor, dict[str, Tensor]]:
    """The project's log-probs, and the gradient of their sum."""
    lm = copy.deepcopy(model)
    lm.set_attn_implementation(IMPLEMENTATION)
    scores = ScoringModel(lm)(pack(rollouts), 1.0, STRATEGY).log_prob
    scores.sum().backward()
    return scores.detach(), gradients(lm)


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def check(found: Tensor, model: PreTrainedModel, rollouts: Sequence[Rollout]) -> None:
    """Compares log-probs and the gradient of their sum with the project's."""
    model.zero_grad()
    found.sum().backward()
    expected, expected_gradients = own_scores(model, rollouts)
    torch.testing.assert_close(found.detach(), expected, atol=1e-5, rtol=1e-5)
    given = gradients(model)
    assert given.keys() == expected_gradients.keys()
    for name, gradient in expected_gradients.items():
        assert (given[name] - gradient).abs().max() <= 1e-5 * gradient.abs().max() + 1e-7, name


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return tiny_model(tiny_config(request.param, tie_word_embeddings=request.param == "qwen3"), "sdpa")


@pytest.fixture
def qwen2() -> PreTrainedModel:
    return tiny_model(tiny_config("qwen2"), "sdpa")


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_padded_rows_give_the_projects_own_log_probs_and_gradients(model: PreTrainedModel, side: str) -> None:
    rollouts = made()
    ids, mask = laid_out(rollouts, side)
    with replayed(model, RecordTensors.of(rollouts, mask)):
        logits = model(input_ids=ids, attention_mask=mask, position_ids=positions_of(mask)).logits
    check(scored(logits, ids, mask, rollouts), model, rollouts)
    plain = scored(model(input_ids=ids, attention_mask=mask).logits, ids, mask, rollouts)
    assert (plain - own_scores(model, rollouts)[0]).abs().max() > 0.1


def test_packed_rows_give_the_projects_own(model: PreTrainedModel) -> None:
    rollouts = made()
    ids, mask = laid_out(rollouts, "both")
    shown = mask.bool()
    position_ids = torch.cat([torch.arange(r.tokens) for r in rollouts])[None]
    with replayed(model, RecordTensors.of(rollouts, mask).packed(mask)):
        # transformers reads where sequences start from the positions, if no mask is given
        logits = model(input_ids=ids[shown][None], position_ids=position_ids, use_cache=False).logits[0]
    everywhere = logits.new_zeros(*ids.shape, logits.shape[-1])
    everywhere[shown] = logits
    check(scored(everywhere, ids, mask, rollouts), model, rollouts)


def test_the_inputs_are_the_mixtures_written_out(qwen2: PreTrainedModel) -> None:
    ids, mask = laid_out([rollout([5, 6], [7, 8, 9], {3: {4: 0.75, 2: 0.25}}), rollout([3], [4])], "left")
    embed, records = (
        qwen2.get_input_embeddings(),
        RecordTensors.of([rollout([5, 6], [7, 8, 9], {3: {4: 0.75, 2: 0.25}}), rollout([3], [4])], mask),
    )
    expected = embed(ids).clone()
    expected[0, 3] = 0.75 * embed.weight[4] + 0.25 * embed.weight[2]
    with replayed(qwen2, records):
        made_inputs = embed(ids)
    torch.testing.assert_close(made_inputs, expected)
    assert torch.equal(embed(ids), torch.nn.functional.embedding(ids, embed.weight))


def test_shuffled_split_and_widened_records_stay_with_their_rows(qwen2: PreTrainedModel) -> None:
    rollouts = made()
    ids, mask = laid_out(rollouts, "both")
    records, order = RecordTensors.of(rollouts, mask), torch.tensor([2, 0, 3, 1])
    named = {name: tensor[order] for name, tensor in records.tensors().items()}
    parts = [RecordTensors.from_tensors({n: t[rows] for n, t in named.items()}) for rows in (slice(2), slice(2, 4))]
    found = []
    for part, rows in zip(parts, (order[:2], order[2:]), strict=True):
        wide_ids, wide_mask = (torch.nn.functional.pad(tensor[rows], (3, 1)) for tensor in (ids, mask))
        with replayed(qwen2, part.padded(left=3, right=1)):
            logits = qwen2(input_ids=wide_ids, attention_mask=wide_mask, position_ids=positions_of(wide_mask)).logits
        found.append(scored(logits, wide_ids, wide_mask, [rollouts[row] for row in rows]))
    expected, _ = own_scores(qwen2, [rollouts[row] for row in order])
    torch.testing.assert_close(torch.cat(found), expected, atol=1e-5, rtol=1e-5)
    whole = RecordTensors.cat(parts)
    assert torch.equal(whole.tokens, records.tokens[order])
    assert torch.equal(whole.padded(left=2).padded(left=-2).record.weights, records.record.weights[order])


def test_checkpointed_layers_give_the_same(model: PreTrainedModel) -> None:
    rollouts = made()
    ids, mask = laid_out(rollouts, "right")
    model.gradient_checkpointing_enable()
    model.train()
    with replayed(model, RecordTensors.of(rollouts, mask)):
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    check(scored(logits, ids, mask, rollouts), model, rollouts)


def test_a_checkpoint_around_the_whole_model_needs_the_backward_pass_inside(qwen2: PreTrainedModel) -> None:
    rollouts = made()
    ids, mask = laid_out(rollouts, "right")
    records = RecordTensors.of(rollouts, mask)

    def logits() -> Tensor:
        return qwen2(input_ids=ids, attention_mask=mask, use_cache=False).logits

    with replayed(qwen2, records):
        found = scored(checkpoint(logits, use_reentrant=False), ids, mask, rollouts)
        found.sum().backward()
    inside = gradients(qwen2)
    for name, gradient in own_scores(qwen2, rollouts)[1].items():
        assert (inside[name] - gradient).abs().max() <= 1e-5 * gradient.abs().max() + 1e-7, name
    with replayed(qwen2, records):
        found = scored(checkpoint(logits, use_reentrant=False), ids, mask, rollouts)
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        found.sum().backward()


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("kind", KINDS[:4])
def test_a_compiled_model_replays_without_a_graph_break_or_a_graph_for_each_batch(kind: str) -> None:
    model = tiny_model(tiny_config(kind, num_hidden_layers=1), "sdpa")
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    graphs = 0
    for seed in range(4):
        rollouts = made(seed)
        ids, mask = laid_out(rollouts, "both")
        ids, mask = (torch.nn.functional.pad(tensor, (0, 20 - ids.shape[1])) for tensor in (ids, mask))
        given = {"attention_mask": mask, "position_ids": positions_of(mask), "use_cache": False}
        graphs -= torch._dynamo.utils.counters["stats"]["unique_graphs"]
        with replayed(model, RecordTensors.of(rollouts, mask)):
            logits = compiled(input_ids=ids, **given).logits
        graphs += torch._dynamo.utils.counters["stats"]["unique_graphs"]
        check(scored(logits, ids, mask, rollouts), model, rollouts)
    assert graphs == 2  # of the first size, and of any other
    with replayed(model, RecordTensors.of(rollouts, mask)):
        other = compiled(input_ids=ids.clamp(max=3), **given)
    assert other.logits.isnan().any()


def test_noise_is_drawn_again_from_the_rollouts_own_key_and_position(qwen2: PreTrainedModel) -> None:
    rollouts = made()
    noisy = [_with_noise(r) for r in rollouts]
    ids, mask = laid_out(noisy, "left")
    with replayed(qwen2, RecordTensors.of(noisy, mask)):
        found = qwen2.get_input_embeddings()(ids)[mask.bool()]
    batch = pack(noisy)
    torch.testing.assert_close(found, replay(qwen2.get_input_embeddings(), batch, GaussianTopK(k=2), {}))
    assert not torch.equal(found, replay(qwen2.get_input_embeddings(), pack(rollouts), STRATEGY, {}))


def _with_noise(r: Rollout) -> Rollout:
    record = r.mixture.record._replace(noise=torch.full((len(r.mixture.positions),), 0.5))
    return Rollout(
        r.key, r.prompt_ids, r.response_ids, r.log_probs, type(r.mixture)(r.mixture.positions, record), r.stop_reason
    )


def test_a_detached_strategy_gives_mixed_rows_no_gradient(qwen2: PreTrainedModel) -> None:
    rollouts = [rollout([5, 6], [7, 8], {2: {4: 0.75, 2: 0.25}})]
    ids, mask = laid_out(rollouts, "left")
    with replayed(qwen2, RecordTensors.of(rollouts, mask), GumbelSoftThinking(top_k=2)):
        qwen2.get_input_embeddings()(ids).sum().backward()
    gradient = qwen2.get_input_embeddings().weight.grad
    assert gradient is not None
    assert gradient[[5, 6, 8]].all()
    assert not gradient[[2, 4, 7]].any()


def test_what_does_not_fit_is_refused_and_the_embedding_is_its_own_again(qwen2: PreTrainedModel) -> None:
    rollouts = made()
    ids, mask = laid_out(rollouts, "left")
    records = RecordTensors.of(rollouts, mask)
    with pytest.raises(ValueError, match="shape"), replayed(qwen2, records):
        qwen2(input_ids=ids[:-1], attention_mask=mask[:-1])
    with pytest.raises(ValueError, match="other tokens"), replayed(qwen2, records[[1, 0, 2, 3]]):
        qwen2(input_ids=ids, attention_mask=mask)
    with pytest.raises(ValueError, match="already"), replayed(qwen2, records), replayed(qwen2, records):
        pass
    assert "forward" not in vars(qwen2.get_input_embeddings())
    with pytest.raises(ValueError, match="its rollout has"):
        RecordTensors.of(rollouts, mask[[1, 0, 2, 3]])
    with pytest.raises(ValueError, match="3 rows for 4 rollouts"):
        RecordTensors.of(rollouts, mask[:-1])


def test_records_that_lost_digits_rows_or_a_channel_are_refused() -> None:
    """DeepSpeed casts all numbers of a batch, and a collator may pad some tensors and not the others."""
    rollouts = [_with_noise(r) for r in made()]
    _, mask = laid_out(rollouts, "left")
    named = RecordTensors.of(rollouts, mask).tensors()
    for name, tensor in named.items():
        other = tensor.bfloat16() if tensor.is_floating_point() else tensor.short()
        for changed, said in (
            (other, f"{name} is {other.dtype}"),
            (tensor[:, 1:], "input_ids"),
            (tensor[1:], "input_ids"),
        ):
            with pytest.raises(ValueError, match=said):
                RecordTensors.from_tensors(named | {name: changed})
    for several in ((made()[0], rollouts[1]), (rollouts[0], made()[1])):
        with pytest.raises(ValueError, match="some records have noise and others none"):
            RecordTensors.of(several, laid_out(several, "left")[1])
        with pytest.raises(ValueError, match="some records have noise and others none"):
            pack(several)


@pytest.mark.parametrize("slots", [[0], [-1], [2, 2], [3, 2], [5]], ids=str)
def test_mixtures_at_other_slots_than_the_responses_are_refused(slots: list[int]) -> None:
    """Of a rollout that a program has put together itself: 0 is the response's first slot for who counts from there."""
    one = rollout([5, 6], [7, 8, 9], {2 + number: {4: 0.75, 2: 0.25} for number in range(len(slots))})
    other = replace(one, mixture=replace(one.mixture, positions=torch.tensor(slots)))
    with pytest.raises(ValueError, match="its response has the slots 2 to 4; count them from the prompt's beginning"):
        RecordTensors.of([other], torch.ones(1, 5))


def test_another_forward_of_the_embedding_runs_inside_and_comes_back(qwen2: PreTrainedModel) -> None:
    embed, rollouts = qwen2.get_input_embeddings(), made()
    ids, mask = laid_out(rollouts, "left")
    plain = embed.forward
    embed.forward = lambda ids: 2 * plain(ids)  # type: ignore[method-assign]
    doubled = embed.forward
    with replayed(qwen2, RecordTensors.of(rollouts, mask)):
        found = embed(ids)
    assert embed.forward is doubled
    del embed.forward
    with replayed(qwen2, RecordTensors.of(rollouts, mask)):
        torch.testing.assert_close(found, 2 * embed(ids))


def test_without_a_mixture_nothing_changes(qwen2: PreTrainedModel) -> None:
    rollouts = [r.without_mixtures() for r in made()]
    ids, mask = laid_out(rollouts, "left")
    with replayed(qwen2, RecordTensors.of(rollouts, mask)):
        found = qwen2(input_ids=ids, attention_mask=mask).logits
    assert torch.equal(found, qwen2(input_ids=ids, attention_mask=mask).logits)
