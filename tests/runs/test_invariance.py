"""One optimiser step has the same gradient however its batch is laid out."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from forked import HELPERS, call_in_ranks, succeed
from lightning import Callback
from transformers import AutoModelForCausalLM
from update_probe import TOLERANCE, Case, distance, gradient

from ngrpo.algo.advantage import group_standardised
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.lora import LoraSettings
from ngrpo.types.rollouts import Rollout


@pytest.fixture
def case(make_engine, bound, requests, sampling, tiny_model_path) -> Case:
    engine = make_engine()
    rollouts = engine.generate(requests, sampling, bound(engine, NeighborMixing(rate=0.3)))
    rewards = torch.rand(6, 4, generator=torch.Generator().manual_seed(3)).round()
    rewards[0] = torch.tensor([1.0, 0.0, 0.0, 1.0])
    return Case(str(tiny_model_path), "gspo", sampling.temperature, 10_000, rollouts, rewards)


def padded_gradient(case: Case) -> dict[str, torch.Tensor]:
    """The same step with stock transformers: right-padded batch, attention mask, whole logits, formulas written out.

    On the first step the ratio is 1, so the surrogate is -A exp(lp - sg(lp)); the KL to an equal reference is 0 and
    so is its gradient.
    """
    model = AutoModelForCausalLM.from_pretrained(case.model_path, attn_implementation="eager")
    embed = model.get_input_embeddings()  # the module, since it gives its padding row no gradient
    rollouts, advantages = case.rollouts, group_standardised(case.rewards).flatten()
    width = max(len(r.prompt_ids) + r.length for r in rollouts)
    inputs = torch.zeros(len(rollouts), width, embed.embedding_dim)
    mask = torch.zeros(len(rollouts), width, dtype=torch.long)
    for row, r in enumerate(rollouts):
        tokens = torch.cat([r.prompt_ids, r.response_ids])
        vectors = list(embed(tokens))
        for slot, ids, weights in zip(r.mixture.positions, *r.mixture.record[:2], strict=True):
            vectors[slot] = sum(w * vector for w, vector in zip(weights, embed(ids.long()), strict=True))
        inputs[row, : len(tokens)] = torch.stack(vectors)
        mask[row, : len(tokens)] = 1
    log_probs = (model(inputs_embeds=inputs, attention_mask=mask).logits / case.temperature).log_softmax(-1)
    tokens_in_all = sum(r.length for r in rollouts)
    loss = torch.zeros(())
    for row, r in enumerate(rollouts):
        start = len(r.prompt_ids) - 1
        lp = log_probs[row, start : start + r.length].gather(-1, r.response_ids[:, None])[:, 0]
        log_ratio = lp - lp.detach()
        if case.algorithm == "gspo":
            loss = loss - advantages[row] * log_ratio.mean().exp() / len(rollouts)
        else:
            loss = loss - (advantages[row] * log_ratio.exp()).sum() / tokens_in_all
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("algorithm", ["gspo", "grpo"])
def test_microbatch_split_and_padding_do_not_matter(case: Case, algorithm: str):
    case = replace(case, algorithm=algorithm)
    whole = gradient(case)
    assert distance(whole, padded_gradient(case)) < TOLERANCE
    for budget in (1, 60, 200):
        assert distance(whole, gradient(replace(case, microbatch_tokens=budget))) < TOLERANCE


def test_the_comparison_can_fail(case: Case):
    whole = gradient(case)
    plain = [r.without_mixtures() for r in case.rollouts]
    assert distance(whole, gradient(replace(case, rollouts=plain))) > 1e-2
    assert distance(whole, gradient(replace(case, algorithm="grpo"))) > 1e-2


def test_order_of_the_groups_does_not_matter(case: Case):
    order = [3, 0, 5, 1, 4, 2]
    moved: list[Rollout] = [case.rollouts[4 * group + i] for group in order for i in range(4)]
    permuted = replace(case, rollouts=moved, rewards=case.rewards[order], microbatch_tokens=120)
    assert distance(gradient(case), gradient(permuted)) < TOLERANCE


@pytest.mark.parametrize("algorithm", ["gspo", "reinforce_pp", "copo", "forking"])
def test_the_prompts_keys_make_the_groups(case: Case, algorithm: str):
    """Rollouts of all prompts interleaved, with their keys: the gradient stays."""
    case = replace(case, algorithm=algorithm)
    order = [4 * group + i for i in range(4) for group in (3, 0, 5, 1, 4, 2)]
    shuffled = replace(
        case,
        rollouts=[case.rollouts[i] for i in order],
        rewards=case.rewards.flatten()[order].view(6, 4),
        keys=[i // 4 for i in order],
        microbatch_tokens=120,
    )
    assert distance(gradient(case), gradient(shuffled)) < TOLERANCE
    if algorithm != "reinforce_pp":  # which has no groups
        assert distance(gradient(case), gradient(replace(shuffled, keys=None))) > 1e-2


WEIGHED = ["clip_cov", "forking", "kl_cov", "entropy_shaped", "first_token"]


@pytest.mark.parametrize("algorithm", ["reinforce_pp", "copo", "ppo", *WEIGHED])
def test_microbatch_split_does_not_matter_to_statistics_of_the_batch(case: Case, algorithm: str):
    case = replace(case, algorithm=algorithm)
    whole = gradient(case)
    for budget in (1, 60, 200):
        assert distance(whole, gradient(replace(case, microbatch_tokens=budget))) < TOLERANCE


@pytest.mark.parametrize("algorithm", WEIGHED)
def test_microbatch_split_does_not_matter_off_policy(case: Case, algorithm: str):
    """The gradient of the second step, after the first has moved the policy."""
    case = replace(case, algorithm=algorithm, optimizer_steps=2, lr=0.05)
    whole = gradient(case)
    assert distance(whole, gradient(replace(case, lr=0.0))) > 1e-3
    for budget in (1, 60, 200):
        assert distance(whole, gradient(replace(case, microbatch_tokens=budget))) < TOLERANCE


@pytest.fixture
def learned_case(make_engine, bound, requests, sampling, tiny_model_path) -> Case:
    """One of the ranks has no mixed position in some microbatches, and none at all in its first two groups."""
    engine, strategy = make_engine(), HybridReasoning(r_min=0.5, r_max=0.9)
    rollouts = engine.generate(requests, sampling, bound(engine, strategy))
    rollouts[:8] = [r.without_mixtures() for r in rollouts[:8]]
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0]] * 6)
    return Case(str(tiny_model_path), "grpo", sampling.temperature, 80, rollouts, rewards, exploration=strategy)


def test_learned_parameters_have_one_gradient_whatever_the_layout(learned_case: Case):
    whole = gradient(replace(learned_case, microbatch_tokens=10_000))
    learned = {name: value for name, value in whole.items() if name.startswith("learned.")}
    assert len(learned) == 5
    assert all(bool(value.any()) for value in learned.values())
    assert distance(learned, gradient(learned_case)) < TOLERANCE
    assert distance(whole, gradient(learned_case)) < TOLERANCE


@pytest.fixture
def dense_case(make_engine, bound, requests, sampling, tiny_model_path) -> Case:
    """The score has gradient through the whole table."""
    engine, strategy = make_engine(), GaussianSoftTokens(scale=2.0)
    rollouts = engine.generate(requests, sampling, bound(engine, strategy))
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0]] * 6)
    return Case(str(tiny_model_path), "grpo", sampling.temperature, 80, rollouts, rewards, exploration=strategy)


@pytest.fixture
def truncated_case(make_engine, bound, requests, sampling, tiny_model_path) -> Case:
    """Of one prompt the rollouts were drawn from the whole vocabulary."""
    engine, strategy = make_engine(), MinPSampling(0.05, largest_support=30)
    asked = [replace(request, explore=number >= 4) for number, request in enumerate(requests)]
    rollouts = engine.generate(asked, sampling, bound(engine, strategy))
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0]] * 6)
    return Case(str(tiny_model_path), "grpo", sampling.temperature, 80, rollouts, rewards, exploration=strategy)


def in_two_processes(case: Case, folder: Path) -> dict[str, torch.Tensor]:
    """The gradient of a case, sharded over two processes."""
    torch.save(case, folder / "case.pt")
    succeed(f"{HELPERS}/update_probe.py", f"{folder}/case.pt", f"{folder}/gradient.pt", path=[HELPERS], ranks=2)
    made: dict[str, torch.Tensor] = torch.load(folder / "gradient.pt")
    return made


@pytest.mark.parametrize(
    "kind", ["gspo", "grpo", "reinforce_pp", "copo", "ppo", *WEIGHED, "learned", "dense", "truncated"]
)
def test_two_sharded_processes_make_the_gradient_of_one(
    case: Case, learned_case: Case, dense_case: Case, truncated_case: Case, kind: str, tmp_path: Path
):
    others = {"learned": learned_case, "dense": dense_case, "truncated": truncated_case}
    case = others[kind] if kind in others else replace(case, algorithm=kind, microbatch_tokens=80)
    one, two = gradient(case), in_two_processes(case, tmp_path)
    assert one.keys() == two.keys()
    assert distance(one, two) < TOLERANCE
    for name in one:  # the learned parameters are a small part of the whole gradient
        assert name.startswith("learned.") <= (distance({name: one[name]}, two) < TOLERANCE)


class TrainedOn(Callback):
    """Keeps the keys of the rollouts that this rank trained on."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        self.keys = list(batch.update.entropies)


def _step(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    trained_on = TrainedOn()
    made = gradient(torch.load(f"{folder}/case.pt", weights_only=False), trained_on, ranks=2)
    torch.save((made, trained_on.keys), f"{folder}/{rank}.pt")


@pytest.mark.parametrize("algorithm", ["gspo", "ppo"])
def test_which_rank_computes_a_prompt_does_not_matter(case: Case, algorithm: str, tmp_path: Path):
    """Two ranks compute fewer prompts where they are shared, and make the gradient of one that shares none."""
    case = replace(case, algorithm=algorithm, microbatch_tokens=80)
    prompt_of = {rollout.key: number // 4 for number, rollout in enumerate(case.rollouts)}
    one = gradient(replace(case, share_prompts=False))
    computed: dict[bool, int] = {}
    for share in (True, False):
        torch.save(replace(case, share_prompts=share), tmp_path / "case.pt")
        call_in_ranks(_step, tmp_path, 2)
        (two, *_), keys = zip(*(torch.load(tmp_path / f"{rank}.pt") for rank in range(2)), strict=True)
        assert distance(one, two) < TOLERANCE
        assert [len(own) for own in keys] == [12, 12]
        assert {key for own in keys for key in own} == set(prompt_of)
        computed[share] = sum(len({prompt_of[key] for key in own}) for own in keys)
    assert computed[True] < computed[False]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("kind", ["ppo", "learned"])
def test_when_weights_are_gathered_does_not_matter(
    case: Case, learned_case: Case, kind: str, precision: str, tmp_path: Path
):
    chosen = learned_case if kind == "learned" else replace(case, algorithm=kind, microbatch_tokens=80)
    chosen = replace(chosen, precision=precision, source={"checkpointing": "selective"})
    each = in_two_processes(chosen, tmp_path)
    once = in_two_processes(replace(chosen, gather_once=True), tmp_path)
    assert {part.dtype for part in once.values()} == {torch.float32}
    assert distance(each, once) < TOLERANCE


@pytest.mark.parametrize("checkpointing", ["off", "selective", "full"])
def test_checkpointing_does_not_matter(case: Case, checkpointing: str):
    settings = replace(case, source={"checkpointing": checkpointing}, microbatch_tokens=120)
    assert distance(gradient(case), gradient(settings)) < TOLERANCE


def norm(gradient: dict[str, torch.Tensor]) -> float:
    return sum(float(part.double().square().sum()) for part in gradient.values()) ** 0.5


@pytest.mark.parametrize(("precision", "most"), [("bf16-mixed", 0.1), ("16-mixed", 0.0125)])
def test_mixed_precision_is_the_same_rounding_sharded_or_not(
    learned_case: Case, precision: str, most: float, tmp_path: Path
):
    """A bfloat16 gradient is off by some per cent of itself, a float16 one by an eighth of it; sharded as much."""
    case = replace(learned_case, precision=precision, source={"checkpointing": "selective"})
    exact, one = gradient(replace(case, precision="32-true")), gradient(case)
    two = in_two_processes(case, tmp_path)
    assert {part.dtype for part in two.values()} == {torch.float32}
    assert distance(exact, one) < most
    assert distance(one, two) < 0.2 * distance(exact, one)
    assert norm(two) == pytest.approx(norm(one), rel=1e-3)


def test_a_bfloat16_model_is_sharded_beside_float32_learned_exploration(learned_case: Case, tmp_path: Path):
    case = replace(learned_case, source={"dtype": "bfloat16"})
    two = in_two_processes(case, tmp_path)
    assert {part.dtype for part in two.values()} == {torch.bfloat16, torch.float32}
    assert distance(gradient(case), two) < 0.02


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_adapters_are_sharded(case: Case, tmp_path: Path, precision: str):
    """The first step of B alone, whose A it goes through."""
    pytest.importorskip("peft")
    adapted = replace(case, algorithm="grpo", source={"lora": LoraSettings(rank=4)}, precision=precision)
    one, two = gradient(adapted), in_two_processes(adapted, tmp_path)
    assert one.keys() == two.keys()
    assert all(".lora_" in name for name in one)
    assert norm(one) > 1e-3
    assert distance(one, two) < (TOLERANCE if precision == "32-true" else 0.02)


@pytest.mark.slow
def test_compiled_layers_can_be_sharded(case: Case, tmp_path: Path):
    compiled = replace(case, source={"checkpointing": "selective", "compile": True}, microbatch_tokens=80)
    whole = gradient(case)
    assert distance(whole, gradient(compiled)) < TOLERANCE
    assert distance(whole, in_two_processes(compiled, tmp_path)) < TOLERANCE
