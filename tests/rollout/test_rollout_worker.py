"""Request keys, evaluation and scoring of the rollout worker."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rewards.terms.base import Responses, WeightedTerm
from ngrpo.rollout.scheduling.latr import LookaheadTree
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.types.problems import Problem, Prompt
from ngrpo.types.rollouts import Rollout
from ngrpo.types.scores import Score, Verdict

PROMPTS = [Prompt(Problem(key, f"question {key}", f"answer {key}"), (2, 6 + key, 7, 3)) for key in (0, 3, 8, 11)]
SETTINGS = RolloutSettings(group_size=3, max_new_tokens=12, temperature=0.9)


class Echo:
    """Gives each response itself as its answer, and its reference's length as its reward."""

    def __call__(
        self, responses: Sequence[str], references: Sequence[str], questions: Sequence[str] = ()
    ) -> list[Score]:
        self.references, self.questions = list(references), list(questions)
        return [Score(float(len(b)), False, a, Verdict.WRONG) for a, b in zip(responses, references, strict=True)]


@pytest.fixture
def make(make_engine: Callable[..., TorchEngine], tiny_source: ModelSource) -> Callable[..., RolloutWorker]:
    def worker(strategy: Exploration = NeighborMixing(rate=0.5), seed: int = 0) -> RolloutWorker:  # noqa: B008
        return RolloutWorker(make_engine(), tiny_source.tokenizer(), Echo(), strategy, SETTINGS, (3,), seed)

    return worker


def contents(rollouts: list[Rollout]) -> list[tuple]:
    return [
        (*(part.tolist() for part in (r.prompt_ids, r.response_ids, *_mixture(r))), r.stop_reason) for r in rollouts
    ]


def _mixture(rollout: Rollout) -> tuple[Tensor, Tensor]:
    return rollout.mixture.positions, rollout.mixture.record.ids


def test_rollouts_are_the_same_on_any_split_over_ranks(make: Callable[..., RolloutWorker]):
    whole = contents(make().roll_out(PROMPTS, 5).rollouts)
    assert len(whole) == 12
    for ranks in (2, 4):
        share = len(PROMPTS) // ranks
        parts = [make().roll_out(PROMPTS[rank * share : (rank + 1) * share], 5).rollouts for rank in range(ranks)]
        assert contents([rollout for part in parts for rollout in part]) == whole


def test_every_part_of_the_key_counts(make: Callable[..., RolloutWorker]):
    worker = make()
    made = contents(worker.roll_out(PROMPTS, 5).rollouts)
    later = [replace(p, epoch=1) for p in PROMPTS]
    renamed = [replace(p, problem=replace(p.problem, key=p.problem.key + 1)) for p in PROMPTS]
    assert len({str(r) for r in made[:3]}) == 3
    assert contents(worker.roll_out(PROMPTS, 5).rollouts) == made
    assert contents(worker.roll_out(PROMPTS, 6).rollouts) != made
    assert not set(map(str, contents(worker.roll_out(later, 5).rollouts))) & set(map(str, made))
    assert contents(worker.roll_out(renamed, 5).rollouts) != made
    assert contents(make(seed=1).roll_out(PROMPTS, 5).rollouts) != made


def test_evaluation_is_plain_though_training_mixes(make: Callable[..., RolloutWorker]):
    worker = make()
    trained = worker.roll_out(PROMPTS, 0).rollouts
    assert sum(len(r.mixture.positions) for r in trained) > 10
    evaluated = worker.evaluate(PROMPTS, 5, TokenSampling(), temperature=0.9)
    assert len(evaluated.rollouts) == 20
    assert all(r.mixture.record.ids.shape == (0, 0) for r in evaluated.rollouts)
    plain = make(TokenSampling()).evaluate(PROMPTS, 5, TokenSampling(), temperature=0.9)
    assert contents(evaluated.rollouts) == contents(plain.rollouts)
    assert contents(worker.roll_out(PROMPTS, 0).rollouts) == contents(trained)


def test_evaluations_of_a_truncated_distribution_have_no_bound_and_no_record(make: Callable[..., RolloutWorker]):
    nucleus = TokenSampling(top_p=0.99, largest_support=2)
    worker = make(nucleus)
    trained = worker.roll_out(PROMPTS, 0).rollouts
    assert max(int(r.support.counts.max()) for r in trained if r.support is not None) == 2
    evaluated = worker.evaluate(PROMPTS, 5, nucleus, temperature=0.9).rollouts
    assert [r.support for r in evaluated] == [None] * 20
    unbounded = worker.evaluate(PROMPTS, 5, TokenSampling(top_p=0.99, largest_support=0), temperature=0.9).rollouts
    assert contents(evaluated) == contents(unbounded)


def test_an_engine_that_drops_the_supports_of_training_rollouts_is_refused(
    make: Callable[..., RolloutWorker], monkeypatch: pytest.MonkeyPatch
):
    worker = make(TokenSampling(top_k=3))
    generate = worker.engine.generate

    def without(*arguments: Any) -> list[Rollout]:
        return [replace(rollout, support=None) for rollout in generate(*arguments)]

    monkeypatch.setattr(worker.engine, "generate", without)
    with pytest.raises(SettingError, match=r"^rollout\.engine=TorchEngine returns no Rollout\.support, .*\.$"):
        worker.roll_out(PROMPTS, 0)


def test_an_engine_that_does_not_do_what_trees_need_is_refused(
    make_engine: Callable[..., TorchEngine], tiny_source: ModelSource, monkeypatch: pytest.MonkeyPatch
):
    forking = replace(SETTINGS, scheduler=LookaheadTree(second=1e-4, gap=1.0, lookahead=(4,)))
    engine, tokenizer = make_engine(), tiny_source.tokenizer()
    generate = engine.generate

    def refused(said: str, changed: Callable[..., list[Rollout]]) -> None:
        worker = RolloutWorker(engine, tokenizer, Echo(), TokenSampling(), forking, (3,), 0)
        monkeypatch.setattr(engine, "generate", changed)
        with pytest.raises(SettingError, match=rf"^rollout\.engine=TorchEngine {said}.*, or set rollout/scheduler="):
            worker.roll_out(PROMPTS, 0)

    refused(
        "returns no Rollout.distributions, which rollout.scheduler=LookaheadTree reads",
        lambda *asked: [replace(rollout, distributions=None) for rollout in generate(*asked)],
    )
    refused(
        "draws tokens where Request.forced_token, by which rollout.scheduler=LookaheadTree forks, names one",
        lambda requests, *rest: generate([replace(one, forced_token=None) for one in requests], *rest),
    )
    monkeypatch.setattr(engine, "generate", generate)
    trees = RolloutWorker(engine, tokenizer, Echo(), TokenSampling(), forking, (3,), 0).roll_out(PROMPTS, 0)
    assert any(rollout.path is not None for rollout in trees.rollouts)


def test_each_evaluation_draws_the_same(make: Callable[..., RolloutWorker]):
    worker = make()
    first = worker.evaluate(PROMPTS, 3, TokenSampling(), temperature=0.9)
    worker.roll_out(PROMPTS, 0)
    again = worker.evaluate(PROMPTS, 3, TokenSampling(), temperature=0.9)
    assert contents(first.rollouts) == contents(again.rollouts)
    assert contents(first.rollouts) != contents(make(TokenSampling()).roll_out(PROMPTS, 0).rollouts)


def test_evaluation_has_its_own_temperature(make: Callable[..., RolloutWorker]):
    worker = make()
    greedy = worker.evaluate(PROMPTS, 3, TokenSampling(top_k=1), temperature=0.9).rollouts
    cold = worker.evaluate(PROMPTS, 3, TokenSampling(), temperature=1e-4).rollouts
    assert contents(cold) == contents(greedy)
    assert contents(worker.evaluate(PROMPTS, 3, TokenSampling(), temperature=0.9).rollouts) != contents(greedy)
    assert worker.sampling.temperature == 0.9


def test_responses_of_an_engine_that_overflows_are_told_once(
    make: Callable[..., RolloutWorker], caplog: pytest.LogCaptureFixture
):
    worker = make()
    worker.start(torch.device("cpu"))
    worker.roll_out(PROMPTS, 0)
    assert "not finite" not in caplog.text
    with torch.no_grad():
        worker.engine.embedding()[PROMPTS[1].ids[1]] = torch.nan
    for _ in range(2):
        worker.evaluate(PROMPTS, 2, TokenSampling(), 1.0)
    assert caplog.text.count("of 8 responses have log-probs that are not finite") == 1


def test_rewards_on_a_scale_are_told_once(make: Callable[..., RolloutWorker], caplog: pytest.LogCaptureFixture):
    worker = make()
    worker.start(torch.device("cpu"))
    worker.reward = lambda responses, references: [float(number) for number in range(len(responses))]
    for iteration in range(2):
        worker.roll_out(PROMPTS, iteration)
    assert caplog.text.count("rewards of 1 and of 11 both count as right answers") == 1


def test_texts_scores_and_references_line_up_with_rollouts(make: Callable[..., RolloutWorker]):
    worker = make()
    made = worker.roll_out(PROMPTS, 0)
    for i, rollout in enumerate(made.rollouts):
        assert tuple(rollout.prompt_ids.tolist()) == PROMPTS[i // 3].ids
        words = worker.tokenizer.convert_ids_to_tokens(rollout.response_ids.tolist())
        assert made.texts[i] == "".join(filter(None, words))  # rows of padding are no token and have no text
        assert made.scores[i].answer == made.texts[i]
    assert made.keys == [p.problem.key for p in PROMPTS for _ in range(3)]
    assert worker.reward.references == [p.problem.answer for p in PROMPTS for _ in range(3)]
    assert worker.reward.questions == [p.problem.question for p in PROMPTS for _ in range(3)]
    assert made.rewards.tolist() == [[float(len(p.problem.answer))] * 3 for p in PROMPTS]
    assert "<|im_start|>" in "".join(made.texts)  # special tokens are kept
    assert made.tokens == sum(len(r.response_ids) for r in made.rollouts)
    assert made.group_size == 3
    assert made.generate_s > 0
    assert made.reward_s > 0


def test_terms_see_what_was_scored(make_engine: Callable[..., TorchEngine], tiny_source: ModelSource):
    seen: list[Responses] = []

    def length(responses: Responses) -> torch.Tensor:
        seen.append(responses)
        return torch.tensor([r.length for r in responses.rollouts])

    thinking = replace(PROMPTS[1], ids=(2, 9, 3, 4))  # ends with the marker that opens the reasoning
    terms = [WeightedTerm("length", 0.5, length)]
    worker = RolloutWorker(
        make_engine(), tiny_source.tokenizer(), Echo(), TokenSampling(), SETTINGS, (3,), 0, terms=terms
    )  # fmt: skip
    made = worker.roll_out([PROMPTS[0], thinking], 0)
    assert made.terms == {}
    shaped = worker.shape_rewards(made)
    (responses,) = seen
    assert (
        responses.texts == [s.answer for s in made.scores] == made.texts[:3] + ["<think>" + t for t in made.texts[3:]]
    )
    assert [p.key for p in responses.problems] == [0, 0, 0, 3, 3, 3]
    assert responses.rollouts == made.rollouts
    added = torch.tensor([0.5 * r.length for r in made.rollouts]).view(2, 3)
    torch.testing.assert_close(shaped.rewards, made.rewards + added)
    assert replace(shaped, terms={}) == made


def test_tables_follow_the_weights_only_when_refreshed(make: Callable[..., RolloutWorker]):
    worker = make()
    old = worker.bound.tables["neighbors"]
    torch.manual_seed(1)
    weights = {name: torch.randn_like(p) for name, p in worker.engine.lm.named_parameters()}
    worker.sync_weights(weights.items(), refresh=False)
    assert worker.bound.tables["neighbors"] is old
    worker.sync_weights(weights.items(), refresh=True)
    assert not torch.equal(worker.bound.tables["neighbors"], old)
    worker.restore_tables({"neighbors": old})
    assert torch.equal(worker.bound.tables["neighbors"], old)
    assert worker.bound.end_ids == (5,)


def test_the_finished_iterations_outlast_a_rebuilt_engine(make: Callable[..., RolloutWorker]):
    worker = make()
    assert int(worker.bound.progress) == 0
    weights = dict(worker.engine.lm.named_parameters())
    for refresh in (False, True):
        worker.sync_weights(weights.items(), refresh, finished=7 + refresh)
        assert int(worker.bound.progress) == 7 + refresh
    worker.sync_weights(weights.items(), refresh=False, restart=True)
    assert int(worker.bound.progress) == 8
    worker.restore_tables(worker.bound.tables)
    assert int(worker.bound.progress) == 8
    assert worker.roll_out(PROMPTS, 0).finished == 8


@pytest.mark.parametrize("name", ["group_size", "max_new_tokens", "temperature"])
def test_settings_are_checked(name: str):
    with pytest.raises(SettingError, match=rf"rollout\.{name}=0"):
        RolloutSettings(**{name: 0})
