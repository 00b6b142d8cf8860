"""The rollout callback: its counts, its end, the age of tables and rollouts, and what it says of failures."""

from dataclasses import dataclass, replace

import pytest
import torch
from fake_run import Module, Strategy, batch, trainer
from made_rollouts import experience, rollout, score

from ngrpo.callbacks.rollout import RolloutCallback
from ngrpo.distributed.collectives import Ranks
from ngrpo.errors import RunError
from ngrpo.exploration.base import Exploration, Step
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.rewards.terms.base import RewardTerms, WeightedTerm
from ngrpo.rewards.terms.count_bonus import CountBonus
from ngrpo.rollout.dynamic_sampling import DynamicSampling, every_group, mixed_outcomes
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.training.run_length import RunLength
from ngrpo.types.problems import PassRate, Problem, Prompt, PromptBatch
from ngrpo.types.scores import Verdict

MADE = experience(
    [rollout([1], [2, 3]), rollout([1], [4]), rollout([5], [6, 7, 8]), rollout([5], [9])],
    [
        score(Verdict.UNPARSABLE_REFERENCE, "7"),
        score(Verdict.NO_ANSWER),
        score(Verdict.WRONG, "8"),
        score(Verdict.CORRECT),
    ],
    group_size=2,
)


@dataclass(frozen=True)
class Remembering(Exploration):
    """Its table is the embedding that it was built from."""

    refresh_every: int = 0

    def prepare(self, embedding: torch.Tensor, vocabulary: Vocabulary) -> dict[str, torch.Tensor]:
        return {"seen": embedding.clone()}

    def step(self, logits, ctx):
        return Step.plain(ctx.sample(logits))


class Engine:
    """Serves an embedding of one number."""

    def __init__(self) -> None:
        self.table, self.calls, self.progress = torch.zeros(1, 1), [], []

    def start(self, device: torch.device) -> None:
        self.calls.append("start")

    def wake(self) -> None:
        self.calls.append("wake")

    def sleep(self) -> None:
        self.calls.append("sleep")

    def generate(self, requests, sampling, exploration, report=None) -> list:
        self.calls.append(f"generate with {float(exploration.tables['seen'])}")
        self.progress.append(int(exploration.progress))
        return MADE.rollouts

    def close(self) -> None:
        self.calls.append("close")

    def sync_weights(self, tensors) -> None:
        ((_, self.table),) = tensors

    sync_loaded = sync_weights

    def embedding(self) -> torch.Tensor:
        return self.table


class Policy(Module):
    """A module whose only weight counts the updates."""

    updates = 0.0
    offloads = 0
    token_shares: tuple[float, ...] = ()
    source = ModelSource()

    def follow_tokens(self, share: float) -> None:
        self.token_shares += (share,)

    def offload_optimizers(self) -> None:
        self.offloads += 1

    @property
    def weights(self):
        return self  # stands in for its own export

    def named_weights(self):
        yield "embed", torch.tensor([[self.updates]])

    def learned_exploration(self):
        return {}


@pytest.fixture
def make(tiny_source: ModelSource):
    def callback(iterations: int = 4, refresh_every: int = 0, ahead: int = 0) -> RolloutCallback:
        worker = RolloutWorker(
            Engine(), tiny_source.tokenizer(), lambda texts, references: MADE.scores, Remembering(refresh_every),
            RolloutSettings(group_size=2, ahead=ahead), (3,), seed=0,
        )  # fmt: skip
        return RolloutCallback(worker, RunLength(iterations), DynamicSampling(every_group))

    return callback


def train(callback: RolloutCallback, policy: Policy, iterations: range, run) -> list[float]:
    """Calls the hooks as the trainer does; returns the tables that each iteration's rollouts were made with."""
    used = []
    for iteration in iterations:
        one = batch(iteration)
        one.prompts = MADE.prompts
        one.peek_next = lambda following=iteration + 1: PromptBatch(MADE.prompts, 0, following)
        callback.on_train_batch_start(run, policy, one, 0)
        used.append(float(callback.worker.bound.tables["seen"]))
        policy.updates += 1
        callback.on_train_batch_end(run, policy, None, one, 0)
        if run.should_stop:
            break
    return used


def start(callback: RolloutCallback, policy: Policy):
    run = trainer()
    callback.on_train_start(run, policy)
    return run


def test_the_batch_carries_scored_rollouts(make):
    callback, policy = make(), Policy()
    run = start(callback, policy)
    one = batch(0)
    one.prompts = MADE.prompts
    callback.on_train_batch_start(run, policy, one, 0)
    assert callback.worker.engine.calls == ["start", "generate with 0.0", "sleep"]
    assert replace(one.experience, texts=MADE.texts, generate_s=2.0, reward_s=0.5) == MADE
    callback.on_train_batch_end(run, policy, None, one, 0)
    assert callback.worker.engine.calls[-1] == "wake"


def test_counts_and_stop(make):
    callback, policy = make(iterations=3), Policy()
    run = start(callback, policy)
    assert len(train(callback, policy, range(10), run)) == 3
    assert run.should_stop
    assert (callback.iterations_done, callback.tokens_generated, callback.unparsable_references) == (3, 3 * 7, 3)
    assert float(callback.worker.engine.table) == 3.0


def test_a_limit_of_tokens_stops_after_the_iteration_that_reaches_it(make):
    callback, policy = make(iterations=9), Policy()
    callback.run_length = RunLength(9, max_generated_tokens=15)
    run = start(callback, policy)
    assert len(train(callback, policy, range(10), run)) == 3  # 7, 14 and 21 tokens
    assert run.should_stop
    assert policy.token_shares == (0.0, 7 / 15, 14 / 15, 21 / 15)
    assert policy.logged["rollout/generated_tokens"] == 21


def test_a_resumed_run_counts_on_and_one_that_is_at_its_limit_makes_no_iteration(make, caplog):
    first = make(iterations=9)
    first.tokens_generated, first.iterations_done = 14, 2
    second, policy = make(iterations=9), Policy()
    second.run_length = RunLength(9, max_generated_tokens=15)
    second.load_state_dict(first.state_dict() | {"tables": {"seen": torch.zeros(1, 1)}})
    run = start(second, policy)
    assert (policy.token_shares, run.should_stop, caplog.messages) == ((14 / 15,), False, [])
    second.tokens_generated = 15
    run = start(second, policy)
    assert run.should_stop
    assert caplog.messages == [
        "trainer.max_generated_tokens=15 is reached already, with 15 tokens; raise it to train on"
    ]


def test_counts_are_those_of_all_ranks(make):
    callback, policy = make(), Policy()
    run = trainer(Strategy(others=[[torch.tensor(100.0), torch.tensor(10.0), torch.tensor(1.0)]]))
    callback.on_train_start(run, policy)
    train(callback, policy, range(1), run)
    assert (callback.tokens_generated, callback.unparsable_references) == (107, 11)


def test_groups_that_are_not_worth_it_are_replaced(make, tiny_source: ModelSource):
    """The second group is kept (one of two is right), the first (none) is replaced once by the same outcome."""
    callback, module = make(), Policy()
    callback.selection = DynamicSampling(mixed_outcomes, max_refills=2)
    run, drawn = start(callback, module), []
    engine = callback.worker.engine

    def generate(requests, sampling, exploration, report=None) -> list:
        engine.calls.append(len(requests))
        return MADE.rollouts[: len(requests)]

    def draw(count: int) -> list[Prompt]:
        drawn.append(count)
        return [Prompt(Problem(100 + len(drawn), "", ""), (1,))]

    engine.generate = generate
    callback.worker.reward = lambda texts, references: MADE.scores[: len(texts)]
    reported: list[PassRate] = []
    one = PromptBatch(MADE.prompts, 0, 0, draw, reported.extend)
    callback.on_train_batch_start(run, module, one, 0)
    # Those of groups that were not taken too.
    assert reported == [PassRate(0, 0.0), PassRate(1, 0.5), PassRate(101, 0.0), PassRate(102, 0.0)]
    assert engine.calls == ["start", 4, 2, 2, "sleep"]
    assert drawn == [1, 1]
    assert one.prompts == one.experience.prompts == MADE.prompts
    assert one.experience.tokens == 7 + 3 + 3
    assert module.logged == {
        "sampling/generated": 4, "sampling/kept": 1, "sampling/correct": 1 / 8, "sampling/refills": 2
    }  # fmt: skip
    callback.on_train_batch_end(run, module, None, one, 0)
    assert (callback.tokens_generated, callback.unparsable_references) == (13, 3)


def test_terms_are_added_once_and_saved(make):
    callback, policy = make(), Policy()
    callback.worker.terms = RewardTerms([WeightedTerm("count", 1.0, CountBonus())])
    train(callback, policy, range(2), start(callback, policy))
    saved = callback.state_dict()["reward_terms"]
    assert saved == {"count": {"visits": [(0, "7", 2), (1, "8", 2)]}}
    again = make()
    again.worker.terms = RewardTerms([WeightedTerm("count", 1.0, CountBonus())])
    again.load_state_dict(callback.state_dict())
    assert again.worker.terms.state_dict() == saved


class Counting:
    """A reward whose state is the number of its calls."""

    calls = 0

    def __call__(self, texts, references):
        self.calls += 1
        return MADE.scores

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]


def test_the_state_of_the_reward_is_saved_for_each_rank(make, monkeypatch):
    callback, policy = make(), Policy()
    callback.worker.reward = Counting()
    train(callback, policy, range(2), start(callback, policy))
    saved = callback.state_dict()
    assert saved["reward_states"] == [{"reward": {"calls": 2}, "terms": {}}]
    saved["reward_states"].append({"reward": {"calls": 7}, "terms": {}})
    for rank, calls in ((0, 2), (1, 7)):
        monkeypatch.setattr("ngrpo.callbacks.rollout.ranks", lambda rank=rank: Ranks(rank, 2))
        again = make()
        again.worker.reward = Counting()
        again.load_state_dict(saved)
        start(again, Policy())
        assert again.worker.reward.calls == calls


def test_a_checkpoint_of_version_0_1_has_no_state_of_the_reward(make):
    callback, policy = make(), Policy()
    train(callback, policy, range(1), start(callback, policy))
    saved = callback.state_dict()
    del saved["reward_states"]
    again = make()
    again.worker.reward = Counting()
    again.load_state_dict(saved)
    start(again, Policy())
    assert again.worker.reward.calls == 0


@pytest.mark.parametrize(
    ("refresh_every", "expected"),
    [(0, [0, 0, 0, 0, 0, 0]), (1, [0, 1, 2, 3, 4, 5]), (2, [0, 0, 2, 2, 4, 4]), (4, [0, 0, 0, 0, 4, 4])],
)
def test_tables_are_rebuilt_exactly_when_due(make, refresh_every: int, expected: list[float]):
    callback, policy = make(6, refresh_every), Policy()
    assert train(callback, policy, range(6), start(callback, policy)) == expected


@pytest.mark.parametrize("refresh_every", [0, 1, 2, 3])
@pytest.mark.parametrize("interrupted", [1, 2, 3])
def test_a_resumed_run_uses_the_tables_of_the_interrupted_one(make, refresh_every: int, interrupted: int):
    straight, policy = make(6, refresh_every), Policy()
    expected = train(straight, policy, range(6), start(straight, policy))
    first, policy = make(6, refresh_every), Policy()
    used = train(first, policy, range(interrupted), start(first, policy))
    second = make(6, refresh_every)
    second.load_state_dict(first.state_dict())
    used += train(second, policy, range(interrupted, 6), start(second, policy))
    assert used == expected
    assert second.state_dict() == straight.state_dict()


def test_the_next_batch_is_made_during_the_update_with_the_weights_before_it(make):
    """Tables are rebuilt after every update: they tell which weights a batch was made with."""
    callback, policy = make(iterations=3, refresh_every=1, ahead=1), Policy()
    run = start(callback, policy)
    ages = []
    policy.log = lambda tag, value, batch_size: ages.append(value)
    train(callback, policy, range(3), run)
    generated = [call for call in callback.worker.engine.calls if call.startswith("generate")]
    assert generated == ["generate with 0.0", "generate with 0.0", "generate with 1.0"]
    assert ages == [0.0, 1.0, 1.0]
    assert "sleep" not in callback.worker.engine.calls


def test_the_age_is_that_of_all_ranks(make, monkeypatch: pytest.MonkeyPatch):
    """The engine of another one failed beside the update, and its part is made with the new weights."""
    callback, policy = make(iterations=3, ahead=1), Policy()
    run = start(callback, policy)
    monkeypatch.setattr("ngrpo.callbacks.rollout.gathered", lambda own: [own, 0.0] if isinstance(own, float) else [own])
    ages = [train(callback, policy, range(n, n + 1), run) and policy.logged["rollout/age"] for n in range(3)]
    assert ages == [0.0, 0.5, 0.5]


def test_prefetched_rollouts_are_not_made_again_after_a_resume(make):
    straight, policy = make(refresh_every=1, ahead=1), Policy()
    run = start(straight, policy)
    train(straight, policy, range(2), run)
    saved = straight.state_dict()
    assert saved["made_ahead"][0].dtype == torch.uint8
    resumed = make(refresh_every=1, ahead=1)
    resumed.load_state_dict(saved)
    run = start(resumed, policy)
    train(resumed, policy, range(2, 4), run)
    assert [c for c in resumed.worker.engine.calls if c.startswith("generate")] == ["generate with 2.0"]


@pytest.mark.parametrize(("ahead", "expected"), [(0, [0, 1, 2, 3]), (1, [0, 0, 1, 2])])
def test_strategies_get_the_finished_iterations_of_the_weights(make, ahead: int, expected: list[int]):
    """Also where tables and parameters stay, and after a resume, which makes nothing again that was prefetched."""
    straight, policy = make(ahead=ahead), Policy()
    run = start(straight, policy)
    train(straight, policy, range(4), run)
    assert straight.worker.engine.progress == expected

    first, resumed, policy = make(ahead=ahead), make(ahead=ahead), Policy()
    train(first, policy, range(2), start(first, policy))
    resumed.load_state_dict(first.state_dict())
    train(resumed, policy, range(2, 4), start(resumed, policy))
    assert first.worker.engine.progress + resumed.worker.engine.progress == expected


def test_the_experience_says_with_how_many_it_was_made(make):
    callback, policy = make(refresh_every=1, ahead=1), Policy()
    run, finished = start(callback, policy), []
    for iteration in range(3):
        one = batch(iteration)
        one.prompts = MADE.prompts
        one.peek_next = lambda following=iteration + 1: PromptBatch(MADE.prompts, 0, following)
        callback.on_train_batch_start(run, policy, one, 0)
        finished.append(one.experience.finished)
        callback.on_train_batch_end(run, policy, None, one, 0)
        saved = callback.state_dict()
        callback.prefetch.load_state_dict(saved["made_ahead"], 0)
    assert finished == [0, 0, 1]


def test_the_optimiser_leaves_before_the_engine_wakes(make):
    callback, policy = make(), Policy()
    run = start(callback, policy)
    at_wake = []
    callback.worker.engine.wake = lambda: at_wake.append(policy.offloads)
    train(callback, policy, range(2), run)
    assert at_wake == [2, 3]
    assert {"time/wait_s", "time/sync_s"} <= policy.logged.keys()


def test_an_engine_that_never_takes_new_weights_ends_the_run_with_what_can_be_resumed(make, tmp_path):
    callback, policy = make(), Policy()
    callback.run_dir = tmp_path
    run = start(callback, policy)

    def refuse(tensors) -> None:
        raise ValueError("no room")

    callback.worker.engine.sync_weights = refuse
    with pytest.raises(RunError) as caught:
        train(callback, policy, range(1), run)
    assert str(caught.value) == (
        "the rollout engine failed again after it was rebuilt (ValueError: no room); take another engine with "
        "rollout=torch; there is no checkpoint to resume from."
    )
    assert callback.worker.engine.calls.count("start") == 2
