"""Prefix sampling: its controller, what it gives, and what it keeps of a run."""

import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from made_rollouts import experience, rollout, score
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.scheduling.base import Example, GroupOutcome
from ngrpo.rollout.scheduling.outcomes import group_outcomes, hidden_from, tokens_before
from ngrpo.rollout.scheduling.prefix_sampling import PrefixSampling, given_tokens, steered
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.types.experience import Experience
from ngrpo.types.problems import Problem, Prompt
from ngrpo.types.rollouts import Rollout
from ngrpo.types.scores import Score, Verdict

CONTROLLER = json.loads((ROOT / "tests/vectors2.json").read_text())["prefix_controller"]
PROMPTS = [Prompt(Problem(key, f"question {key}", "1"), (2, 6 + key, 7, 3)) for key in (0, 3)]


def test_vectors_of_the_controller() -> None:
    inputs, shares = CONTROLLER["inputs"], [0.0]
    for rate in inputs["pass_rates"]:
        shares.append(steered(shares[-1], rate, inputs["eta"], inputs["f_max"]))
    outputs = CONTROLLER["outputs"]
    assert shares == pytest.approx(outputs["f"] + shares[len(outputs["f"]) :])
    assert [given_tokens(share, 37) for share in shares[: len(outputs["f"])]] == (
        outputs["prefix tokens of a 37-token response"]
    )
    assert steered(0.3, None, 0.5, 0.8) == 0.3
    assert steered(0.7, 0.0, 0.5, 0.8) == 0.8


def outcome(
    rate: float | None, right: Rollout | None = None, wrong: Rollout | None = None, most: int = 99
) -> GroupOutcome:
    examples = [None if one is None else Example(one, most) for one in (right, wrong)]
    return GroupOutcome(5, rate, *examples)


RIGHT = rollout((1, 2), range(10, 47), {3: {7: 1.0}, 20: {8: 1.0}}, width=1)
WRONG = rollout((1, 2), range(50, 70))


def test_what_is_given() -> None:
    scheduler = PrefixSampling()
    assert scheduler.beginning(5, (1, 2)) is None
    scheduler.observe([outcome(0.0, wrong=WRONG)])
    assert scheduler.beginning(5, (1, 2)) is None  # f = 0.25, and no right response
    scheduler.observe([outcome(0.25, RIGHT, WRONG)])
    given = scheduler.beginning(5, (1, 2))
    assert given is not None
    assert given.ids == tuple(range(10, 10 + int(0.375 * 37)))
    assert given.mixture is not None
    assert given.mixture.positions.tolist() == [3]
    assert scheduler.beginning(6, (1, 2)) is None
    assert scheduler.beginning(5, (1, 3)) is None  # another prompt
    for _ in range(3):
        scheduler.observe([outcome(1.0, RIGHT)])
    given = scheduler.beginning(5, (1, 2))
    assert given is not None
    assert given.ids == tuple(range(50, 50 + int(0.375 * 20)))
    scheduler.observe([outcome(None)])
    again = scheduler.beginning(5, (1, 2))
    assert again is not None
    assert again.ids == given.ids


def test_the_answer_is_never_given() -> None:
    scheduler = PrefixSampling()
    for _ in range(9):
        scheduler.observe([outcome(0.0, RIGHT, most=4)])
    given = scheduler.beginning(5, (1, 2))
    assert given is not None
    assert len(given.ids) == 4
    scheduler.observe([outcome(0.0, RIGHT, most=0)])
    assert scheduler.beginning(5, (1, 2)) is None


@pytest.mark.parametrize(
    ("text", "answer", "hidden"),
    [
        ("so 3 + 4 = 7 </think> \\boxed{7}", "7", " </think>"),
        ("first \\boxed{3}, no: \\boxed{7}", "7", "\\boxed{7}"),
        ("so \\boxed{7}? \\boxed{3}? indeed, \\boxed{ 7 }.", "7", "\\boxed{7}?"),
        ("it is \\boxed 7 then, \\boxed{7} and \\boxed{", "7", "\\boxed 7 then"),
        ("put it in \\boxed{} and \\boxed{", None, "\\boxed{} and"),
        ("it is 7, yes 7.", "7", "7."),
        ("no idea", None, ""),
        ("it is seven", "7", ""),
    ],
)
def test_where_the_answer_begins(text: str, answer: str | None, hidden: str) -> None:
    place = hidden_from(text, score(Verdict.CORRECT, answer))
    assert text[place:].startswith(hidden.strip())
    assert place == len(text) or hidden


def test_tokens_end_before_the_answer(tiny_source: ModelSource) -> None:
    tokenizer = tiny_source.tokenizer()
    ids = tokenizer("a b c </think> boxed { 1 }", add_special_tokens=False)["input_ids"]
    text = tokenizer.decode(ids)
    for place in range(len(text) + 1):
        count = tokens_before(ids, tokenizer, place)
        assert len(tokenizer.decode(ids[:count])) <= place or count == 0
        assert count == len(ids) or len(tokenizer.decode(ids[: count + 1])) > place
    outcomes = group_outcomes(
        replace(
            experience([rollout((1,), ids)] * 2, [score(Verdict.UNPARSABLE_REFERENCE), score(Verdict.WRONG)], 2),
            texts=[text] * 2,
        ),
        tokenizer,
    )
    assert outcomes[0].pass_rate == 0.0
    assert outcomes[0].right is None
    assert outcomes[0].wrong is not None
    assert outcomes[0].wrong.most == 3


def test_two_groups_of_one_problem_have_outcomes_of_their_own(tiny_source: ModelSource) -> None:
    """One batch may end an epoch and begin the next."""
    scores = [score(Verdict.CORRECT), score(Verdict.WRONG), score(Verdict.WRONG), score(Verdict.WRONG)]
    made = experience([rollout((1,), [5, 6])] * 4, scores, 2)
    made = replace(made, keys=[7] * 4, prompts=[replace(one, problem=Problem(7, "", "")) for one in made.prompts])
    outcomes = group_outcomes(made, tiny_source.tokenizer())
    assert [(one.problem, one.pass_rate) for one in outcomes] == [(7, 0.5), (7, 0.0)]


def test_state_survives_a_checkpoint() -> None:
    scheduler = PrefixSampling()
    scheduler.observe([outcome(0.25, RIGHT), GroupOutcome(8, 1.0, None, Example(WRONG, 3))])
    stored = io.BytesIO()
    torch.save(scheduler.state_dict(), stored)
    stored.seek(0)
    again = PrefixSampling()
    again.observe([outcome(1.0, WRONG)])
    again.load_state_dict(torch.load(stored, weights_only=True))
    assert list(again.known) == [5, 8]
    for problem in (5, 8):
        one, other = scheduler.known[problem], again.known[problem]
        assert one.share == other.share
        for mine, theirs in ((one.right, other.right), (one.wrong, other.wrong)):
            assert (mine is None) == (theirs is None)
            if mine is not None and theirs is not None:
                assert mine.most == theirs.most
                assert mine.rollout.response_ids.equal(theirs.rollout.response_ids)
                assert mine.rollout.mixture.positions.equal(theirs.rollout.mixture.positions)


@pytest.mark.parametrize(("setting", "value"), [("rate", -0.1), ("rate", math.nan), ("most", 1.0), ("most", -0.1)])
def test_what_is_out_of_range_is_refused(setting: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"rollout.scheduler.{setting}="):
        PrefixSampling(**{setting: value})


class FirstOfFour:
    """The first response of each group is right."""

    def __call__(self, responses: Sequence[str], references: Sequence[str]) -> list[Score]:
        return [score(Verdict.WRONG if number % 4 else Verdict.CORRECT) for number in range(len(responses))]

    def close(self) -> None:
        pass


def test_groups_continue_what_the_worker_saw(
    make_engine: Callable[..., TorchEngine], tiny_source: ModelSource, bound, sampling
) -> None:
    """Two iterations: the second one's responses go on from the first one's, and are replayed."""
    scheduler, strategy = PrefixSampling(rate=3.2), NeighborMixing(rate=0.4)
    settings = RolloutSettings(4, 16, sampling.temperature, scheduler=scheduler)
    worker = RolloutWorker(make_engine(), tiny_source.tokenizer(), FirstOfFour(), strategy, settings, (3,), 0)
    first = worker.roll_out(PROMPTS, 0)
    worker.observe([first])
    second = worker.roll_out(PROMPTS, 1)
    given = 0
    for number, prompt in enumerate(PROMPTS):
        prefix = scheduler.beginning(prompt.problem.key, prompt.ids)
        group = second.rollouts[4 * number : 4 * number + 4]
        length = 0 if prefix is None else len(prefix.ids)
        assert {one.prefix_length for one in group} == {length}
        assert all(prefix is None or tuple(one.response_ids[:length].tolist()) == prefix.ids for one in group)
        given += length
    assert given > 4
    assert second.tokens == sum(one.generated for one in second.rollouts)
    scores = ScoringModel(tiny_source.load())(pack(second.rollouts), sampling.temperature, strategy).log_prob
    recorded = torch.cat([one.generated_log_probs for one in second.rollouts])
    torch.testing.assert_close(scores, recorded, atol=1e-4, rtol=0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_problem_that_a_batch_holds_twice_is_learned_from_in_the_order_of_its_epochs(
    ranks: int, tiny_source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its group of the second epoch may be the first rank's."""
    scheduler = PrefixSampling()
    worker = RolloutWorker(
        TorchEngine(tiny_source), tiny_source.tokenizer(), FirstOfFour(), NeighborMixing(),
        RolloutSettings(2, scheduler=scheduler), (3,), 0,
    )  # fmt: skip

    def group(epoch: int, response: Rollout) -> Experience:
        made = experience([response, response], [score(Verdict.CORRECT), score(Verdict.CORRECT)], 2)
        return replace(made, prompts=[replace(made.prompts[0], epoch=epoch)])

    early, late = group(0, RIGHT), group(1, WRONG)
    if ranks == 1:
        worker.observe([early, late])
    else:
        waiting: list[list[tuple[int, GroupOutcome]]] = []
        monkeypatch.setattr("ngrpo.rollout.worker.gathered", lambda own: waiting.append(own) or [own])
        worker.observe([early])
        worker.observe([late])
        scheduler.known.clear()
        monkeypatch.setattr("ngrpo.rollout.worker.gathered", lambda own: [waiting[1], waiting[0]])
        worker.observe([late])
    known = scheduler.known[0]
    assert known.right is not None
    assert known.right.rollout.response_ids.equal(WRONG.response_ids)
