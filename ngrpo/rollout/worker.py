"""The rollout worker of a rank, which makes scored rollouts of prompts with its engine, strategy and reward."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor

from ngrpo.distributed.collectives import from_first, gathered, ranks
from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.rewards.functions.columns import columns_of
from ngrpo.rewards.reasoning import opening
from ngrpo.rewards.terms.base import Responses, RewardTerms, Stateful, WeightedTerm
from ngrpo.rewards.terms.calls import scored
from ngrpo.rollout.continuous_refill import GrowingProgress, ScoredGroups, refilled_rounds
from ngrpo.rollout.dynamic_sampling import DynamicSampling
from ngrpo.rollout.engine import Report, RolloutEngine, StreamingEngine
from ngrpo.rollout.graded_scores import warn_of_graded
from ngrpo.rollout.nonfinite_scores import warn_of_nonfinite
from ngrpo.rollout.null_engine import NullEngine
from ngrpo.rollout.recovery import (
    EngineFailure,
    engine_failures,
    made_with_recovery,
    quoted,
    stream_failures,
    taken_whole,
    transferred_with_recovery,
)
from ngrpo.rollout.scheduling.base import LearningScheduler, Scheduler
from ngrpo.rollout.scheduling.growth import grow
from ngrpo.rollout.scheduling.independent import IndependentSamples
from ngrpo.rollout.scheduling.outcomes import group_outcomes
from ngrpo.types.experience import Experience
from ngrpo.types.problems import Prompt
from ngrpo.types.rollouts import Request, Rollout, Sampling, StopReason
from ngrpo.types.scores import Score
from ngrpo.utils.out_of_memory import out_of_memory

log = logging.getLogger(__name__)

T = TypeVar("T")

_EVALUATION = -1
"""Stands for the iteration in the keys of evaluation rollouts: each evaluation draws the same randomness."""

_TAIL = 8
"""Tokens at the end of a prompt in which a generation prompt's `<think>` is looked for."""


class Reward(Protocol):
    """Scores responses against reference answers.

    One that declares a further parameter ``questions`` also gets the question of each response, as text; likewise
    ``prompts``, ``completions`` and the fields that the data keeps, see `ngrpo.rewards.functions.columns`.
    """

    def __call__(self, responses: Sequence[str], references: Sequence[str]) -> list[Score]:
        """Returns a score a response."""

    def close(self) -> None:
        """Frees the resources of scoring."""


class Weights(Protocol):
    """The policy's weights, which a rebuilt engine gets again."""

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yields all weights by transformers name (a collective)."""

    def learned_exploration(self) -> dict[str, Tensor]:
        """Returns the strategy's learned parameters by name (a collective)."""


class Observer(Protocol):
    """A listener to the progress of rollouts, such as a status line."""

    def generating(self, total: int) -> Report:
        """Called when so many rollouts are started; returns what the engine reports to."""

    def scoring(self, total: int) -> None:
        """Called when so many responses are to be scored."""


@dataclass(frozen=True)
class RolloutSettings:
    """Settings of rollouts (``rollout`` in the configuration, without its engine).

    Attributes:
        group_size: G, rollouts a prompt.
        max_new_tokens: most response tokens.
        temperature: tau of rollouts and of the trainer's log-probs.
        ahead: batches that are prefetched, 0 or 1, with weights as many updates old.
        exact: trainer and engine give a token the same log-prob, bit for bit (`ngrpo.modeling.exact`).
        scheduler: which requests make the rollouts of a prompt.
    """

    group_size: int = 8
    max_new_tokens: int = 64
    temperature: float = 1.0
    ahead: int = 0
    exact: bool = False
    scheduler: Scheduler = field(default_factory=IndependentSamples)

    def __post_init__(self) -> None:
        for name in ("group_size", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise SettingError(f"rollout.{name}={getattr(self, name)} makes no rollout; choose 1 or more.")
        if not 0 < self.temperature < math.inf:
            raise SettingError(
                f"rollout.temperature={self.temperature} cannot divide logits; choose a positive value "
                "(exploration.top_k=1 is greedy decoding)."
            )
        if self.ahead not in (0, 1):
            raise SettingError(f"rollout.ahead={self.ahead} is not supported; choose 0 or 1.")


class RolloutWorker:
    """Makes and scores rollouts on one rank, for its tensor group.

    An engine that fails is rebuilt once, with the weights that it had, and goes on where it stood. One that is found
    broken between two calls is rebuilt by the next.

    Attributes:
        observer: hears of its progress, if set.
        weights: what a rebuilt engine serves; None for those that it loads when it starts.
        how_to_resume: returns a clause that says how to resume, for the error of an engine that fails twice.

    Args:
        engine: makes the rollouts.
        tokenizer: a transformers tokenizer; turns responses into text for the reward.
        reward: scores them.
        exploration: the training strategy.
        settings: group size, lengths, temperature.
        stop_ids: token ids that end a response.
        seed: the run's seed.
        learned: the strategy's own parameters until `sync_weights` brings others; None for its initial ones.
        terms: added to the correctness reward of training rollouts.
    """

    def __init__(
        self,
        engine: RolloutEngine,
        tokenizer: Any,
        reward: Reward,
        exploration: Exploration,
        settings: RolloutSettings,
        stop_ids: tuple[int, ...],
        seed: int,
        learned: Mapping[str, Tensor] | None = None,
        terms: Sequence[WeightedTerm] = (),
    ) -> None:
        self.engine = engine
        self._wasted = 0
        self.tokenizer = tokenizer
        self.reward = reward
        self.exploration = exploration
        self.settings = settings
        self.seed = seed
        self.terms = RewardTerms(terms)
        self.vocabulary = Vocabulary.of(tokenizer)
        recorded = settings.scheduler.reads_distributions
        self.sampling = Sampling(settings.temperature, settings.max_new_tokens, stop_ids, recorded)
        self.device = torch.device("cpu")
        self.observer: Observer | None = None
        self.weights: Weights | None = None
        self.how_to_resume: Callable[[], str] = lambda: "start again"
        self._bound: BoundExploration | None = None
        self._learned = learned
        self._finished = 0
        self._asleep = False
        self._lost: str | None = None
        self._told_nonfinite = False
        self._told_graded = False

    def start(self, device: torch.device) -> None:
        """Starts the engine on this rank's device; one serves a tensor group.

        Raises:
            RunError: it does not start.
        """
        self.device = device
        if not ranks().first:
            self.engine = NullEngine()
        try:
            self.engine.start(device)
        except (SettingError, RunError):
            raise
        except Exception as error:
            if out_of_memory(error):
                raise
            raise RunError(
                f"the rollout engine could not start ({quoted(error)}); choose another model, change rollout.engine, "
                "or take another engine such as rollout=torch."
            ) from error

    def transfer(
        self,
        refresh: bool,
        finished: int | None = None,
        loaded: bool = False,
        tables: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Gives the policy's weights to the engine, which is rebuilt once if it fails (a collective).

        Args:
            refresh: see `sync_weights`, as for the next two.
            finished: training iterations behind the weights.
            loaded: they are those that the engine has loaded.
            tables: those of an interrupted run, in place of newly prepared ones; only with ``refresh``.

        Raises:
            RunError: the engine failed twice, or refuses the weights.
        """
        weights = self.weights
        assert weights is not None

        def transfer(restart: bool) -> None:
            learned = weights.learned_exploration()
            self.sync_weights(weights.named_weights(), refresh, learned, loaded, finished, restart)
            if tables is not None:
                self.restore_tables(tables)
            elif ranks().first:
                _ = self.bound  # nothing is asked of the engine later, when it may be gone

        transferred_with_recovery(transfer, self.how_to_resume)

    def sync_weights(
        self,
        tensors: Iterable[tuple[str, Tensor]],
        refresh: bool,
        learned: Mapping[str, Tensor] | None = None,
        loaded: bool = False,
        finished: int | None = None,
        restart: bool = False,
    ) -> None:
        """Transfers new weights to the engine; ``refresh`` rebuilds the strategy's tables from them.

        Args:
            tensors: the model's, by transformers name; they are walked to the end whatever the engine does.
            refresh: rebuild the tables.
            learned: the strategy's own parameters; None leaves the initial ones.
            loaded: they are exactly the weights that the engine has loaded, see `RolloutEngine.sync_loaded`.
            finished: training iterations behind these weights, which a strategy may read; None leaves the number.
            restart: build the engine anew first.

        Raises:
            EngineFailure: the engine does not take them.
        """
        with taken_whole(tensors) as rest, engine_failures():
            self._make_ready(restart)
            (self.engine.sync_loaded if loaded else self.engine.sync_weights)(rest)
        self._learned = learned
        self._finished = self._finished if finished is None else finished
        if refresh:
            self._bound = None
        elif self._bound is not None:
            self._bound = replace(self._bound, parameters=learned or {}).after(self._finished)

    def wasted_tokens(self) -> int:
        """Returns the tokens that the engine computed for rows that had ended, since this was asked last."""
        before, self._wasted = self._wasted, getattr(self.engine, "wasted_tokens", 0)
        return self._wasted - before

    def sleep(self) -> None:
        """Lets the engine free what it can until weights come; one that fails is rebuilt then."""
        try:
            self.engine.sleep()
            self._asleep = True
        except Exception as error:
            self.lose(quoted(error))

    def lose(self, reason: str) -> None:
        """Frees an engine that was found to be broken; the next weights that come, or rollouts, rebuild it."""
        self._lost = reason
        self._close_engine()

    def _make_ready(self, restart: bool) -> None:
        """Starts the engine anew, or wakes it."""
        if restart:
            if self._lost is None:
                self._close_engine()
            self._asleep, self._lost = False, None
            self.engine.start(self.device)
        self._check_lost()
        if self._asleep:
            self.engine.wake()
            self._asleep = False

    def _check_lost(self) -> None:
        if self._lost is not None:
            raise EngineFailure(self._lost)

    def _close_engine(self) -> None:
        try:
            self.engine.close()
        except Exception as error:
            log.debug("a broken engine did not close: %s", error)

    @property
    def bound(self) -> BoundExploration:
        """The training strategy with its tables, its parameters and the finished iterations of the engine's weights."""
        if self._bound is None:
            bound = bind(self.exploration, self._embedding(), self.vocabulary, self._learned)
            self._bound = bound.after(self._finished)
        return self._bound

    def _embedding(self) -> Tensor:
        """Returns the served table, [V, d].

        Raises:
            EngineFailure: the engine does not give it.
        """
        with engine_failures():
            self._check_lost()
            return self.engine.embedding()

    def reward_state(self) -> dict[str, Any]:
        """Returns the state of the reward and of its terms on this rank."""
        reward = self.reward.state_dict() if isinstance(self.reward, Stateful) else {}
        return {"reward": reward, "terms": self.terms.state_dict()}

    def load_reward_state(self, state: Mapping[str, Any]) -> None:
        """Restores it."""
        if state["reward"] and isinstance(self.reward, Stateful):
            self.reward.load_state_dict(state["reward"])
        self.terms.load_state_dict(state["terms"])

    def restore_tables(self, tables: Mapping[str, Tensor]) -> None:
        """Takes the tables that an interrupted run was using, instead of building them from newer weights."""
        if ranks().first:
            bound = bind(self.exploration, self._embedding(), self.vocabulary, self._learned, tables)
            self._bound = bound.after(self._finished)

    def roll_out(self, prompts: list[Prompt], iteration: int) -> Experience:
        """Makes ``group_size`` training rollouts a prompt, scored for correctness; talks to no other rank.

        Raises:
            EngineFailure: the engine failed.
        """
        size, bound, limit = self.settings.group_size, self.bound, self.sampling.max_new_tokens
        requests = self._training_requests(prompts, iteration)
        start = time.perf_counter()
        trees = grow(
            self.settings.scheduler,
            [requests[first : first + size] for first in range(0, len(requests), size)],
            limit,
            lambda asked: self._check_steered(asked, self._generate(asked, self.sampling, bound)),
        )
        rollouts = [leaf for tree in trees for leaf in tree.leaves]
        self._check_supports(rollouts)
        made = self._scored(prompts, size, rollouts, time.perf_counter() - start, int(bound.progress))
        return replace(made, discarded_tokens=sum(tree.pruned_tokens for tree in trees))

    def observe(self, made: Sequence[Experience]) -> None:
        """Tells a scheduler that learns of all that was generated for an iteration (a collective)."""
        scheduler = self.settings.scheduler
        if isinstance(scheduler, LearningScheduler):
            own = [
                (prompt.epoch, outcome)
                for one in made
                for prompt, outcome in zip(one.prompts, group_outcomes(one, self.tokenizer), strict=True)
            ]
            # A batch may hold a problem twice, of two epochs: their order is that of any number of ranks.
            everyone = sorted((met for rank in gathered(own) for met in rank), key=lambda met: (met[0], met[1].problem))
            scheduler.observe([outcome for _, outcome in everyone])

    def scheduler_state(self) -> dict[str, Any]:
        """Returns what the scheduler has learned; nothing of one that does not learn."""
        scheduler = self.settings.scheduler
        return scheduler.state_dict() if isinstance(scheduler, LearningScheduler) else {}

    def load_scheduler_state(self, state: dict[str, Any]) -> None:
        """Restores it."""
        scheduler = self.settings.scheduler
        if state and isinstance(scheduler, LearningScheduler):
            scheduler.load_state_dict(state)

    def shape_rewards(self, experience: Experience) -> Experience:
        """Adds the reward terms to an iteration's rollouts; once an iteration, since terms may count (a collective)."""
        size = experience.group_size
        problems = [prompt.problem for prompt in experience.prompts for _ in range(size)]
        texts = self._texts_to_score(experience.prompts, size, experience.texts)
        completions = self._completions(experience.rollouts, experience.texts)
        responses = Responses(problems, experience.rollouts, texts, experience.scores, completions)
        return replace(experience, terms=from_first(lambda: self.terms(responses)))

    def recovered(self, make: Callable[[], T]) -> T:
        """Makes rollouts on the first rank of each tensor group, for all of it (a collective).

        Args:
            make: makes them; called again when the engine failed and was rebuilt.

        Raises:
            RunError: the engine failed twice, or something else than an engine failed.
        """
        made = made_with_recovery(lambda: make() if ranks().first else None, self._transfer_again, self.how_to_resume)
        return from_first(lambda: cast(T, made))

    def evaluate(
        self,
        prompts: list[Prompt],
        samples: int,
        strategy: Exploration,
        temperature: float,
        expected: Sequence[int] | None = None,
    ) -> Experience | None:
        """Makes ``samples`` evaluation rollouts a prompt with ``strategy``, plain sampling as a rule (a collective).

        Args:
            prompts: this data rank's.
            samples: rollouts of each.
            strategy: decides them.
            temperature: of the sampling.
            expected: about how many response tokens to expect of each prompt; None if nothing is known.

        Returns:
            The rollouts; None of no prompts.
        """
        return self.recovered(
            lambda: self._evaluate(prompts, samples, strategy, temperature, expected) if prompts else None
        )

    def _evaluate(
        self,
        prompts: list[Prompt],
        samples: int,
        strategy: Exploration,
        temperature: float,
        expected: Sequence[int] | None,
    ) -> Experience:
        learned = self._learned if strategy == self.exploration else None
        bound = bind(strategy.unrecorded(), self._embedding(), self.vocabulary, learned).after(self._finished)
        sampling = replace(self.sampling, temperature=temperature, distributions=False)
        return self._make_experience(prompts, samples, _EVALUATION, sampling, bound, expected)

    def roll_out_refilled(
        self,
        prompts: list[Prompt],
        iteration: int,
        draw: Callable[[int], list[Prompt]],
        dynamic_sampling: DynamicSampling,
    ) -> list[Experience]:
        """Makes what `roll_out` makes in the rounds of dynamic sampling, without waiting for one to end.

        Needs a `StreamingEngine`, and a scheduler that asks for all in one round; rewards are called group by group, in
        the order in which groups finish.

        Args:
            prompts: of the first round.
            iteration: of the batch.
            draw: returns so many further prompts.
            dynamic_sampling: which groups are dropped.

        Returns:
            An experience a round.
        """
        assert isinstance(self.engine, StreamingEngine)
        self._check_lost()
        size, bound = self.settings.group_size, self.bound
        progress = None if self.observer is None else GrowingProgress(self.observer.generating)

        def score(prompt: Prompt, rollouts: list[Rollout], seconds: float) -> Experience:
            self._check_supports(rollouts)
            return self._scored([prompt], size, rollouts, seconds, int(bound.progress))

        def requests(further: Sequence[Prompt]) -> list[Request]:
            if progress is not None:
                progress.grow(len(further) * size)
            return self._training_requests(further, iteration)

        opened = self.engine.stream(self.sampling, bound, len(prompts) * size, progress)
        with stream_failures(opened, bound.strategy) as stream:
            return refilled_rounds(ScoredGroups(stream, size, requests, score), prompts, draw, dynamic_sampling)

    def _make_experience(
        self,
        prompts: list[Prompt],
        samples: int,
        iteration: int,
        sampling: Sampling,
        bound: BoundExploration,
        expected: Sequence[int] | None = None,
    ) -> Experience:
        start = time.perf_counter()
        requests = self._requests(prompts, samples, iteration)
        if expected is not None:
            each = (length for length in expected for _ in range(samples))
            requests = [replace(one, expected_tokens=n) for one, n in zip(requests, each, strict=True)]
        rollouts = self._generate(requests, sampling, bound)
        return self._scored(prompts, samples, rollouts, time.perf_counter() - start, int(bound.progress))

    def _training_requests(self, prompts: Sequence[Prompt], iteration: int) -> list[Request]:
        """Returns the requests of independent samples, all those of a prompt with the beginning that it is given."""
        given = [self.settings.scheduler.beginning(prompt.problem.key, prompt.ids) for prompt in prompts]
        size = self.settings.group_size
        requests = self._requests(prompts, size, iteration)
        return [replace(one, prefix=given[number // size]) for number, one in enumerate(requests)]

    def _check_supports(self, rollouts: Sequence[Rollout]) -> None:
        """Refuses rollouts of truncated sampling that do not say what was kept; engines of a user's own may not."""
        if self.exploration.support and any(rollout.support is None for rollout in rollouts):
            raise SettingError(
                f"rollout.engine={type(self.engine).__name__} returns no Rollout.support, on which the tokens of "
                f"exploration={type(self.exploration).__name__} must be scored; let it keep what the steps return, or "
                "choose an exploration that does not truncate."
            )

    def _check_steered(self, asked: Sequence[Request], rollouts: list[Rollout]) -> list[Rollout]:
        """Refuses rollouts without what the scheduler reads, or that began otherwise than it asked for."""
        read = self.sampling.distributions
        for request, rollout in zip(asked, rollouts, strict=True):
            if read and rollout.distributions is None:
                raise self._not_for_trees(
                    "returns no Rollout.distributions, which",
                    "reads; let it record them where Sampling.distributions asks for it",
                )
            forced = request.forced_token
            if forced is not None and forced != int(rollout.response_ids[request.given]):
                raise self._not_for_trees(
                    "draws tokens where Request.forced_token, by which", "forks, names one; let it take that one"
                )
        return rollouts

    def _not_for_trees(self, fault: str, remedy: str) -> SettingError:
        engine, scheduler = type(self.engine).__name__, type(self.settings.scheduler).__name__
        return SettingError(
            f"rollout.engine={engine} {fault} rollout.scheduler={scheduler} {remedy}, or set "
            "rollout/scheduler=independent."
        )

    def _requests(self, prompts: Sequence[Prompt], samples: int, iteration: int) -> list[Request]:
        return [
            # A batch may hold a problem twice, of two epochs: the samples are numbered through.
            Request(prompt.ids, request_key(self.seed, iteration, prompt.problem.key, prompt.epoch * samples + sample))
            for prompt in prompts
            for sample in range(samples)
        ]

    def _scored(
        self, prompts: list[Prompt], samples: int, rollouts: list[Rollout], generate_s: float, finished: int
    ) -> Experience:
        """Scores rollouts that took ``generate_s`` seconds, with weights of so many finished iterations."""
        start = time.perf_counter()
        self._told_nonfinite = self._told_nonfinite or warn_of_nonfinite(rollouts, self.engine)
        if self.observer is not None:
            self.observer.scoring(len(rollouts))
        texts = self.tokenizer.batch_decode(
            [r.response_ids.tolist() for r in rollouts],
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )
        problems = [prompt.problem for prompt in prompts for _ in range(samples)]
        references = [problem.answer for problem in problems]
        keys = [problem.key for problem in problems]
        questions = [problem.question for problem in problems]
        columns = {"completions": self._completions(rollouts, texts), **columns_of(problems)}
        judged = self._texts_to_score(prompts, samples, texts)
        scores = scored(self.reward, judged, references, keys, questions, columns)
        self._told_graded = self._told_graded or warn_of_graded(scores)
        reward_s = time.perf_counter() - start
        return Experience(prompts, rollouts, keys, texts, scores, generate_s, reward_s, finished=finished)

    def _generate(self, requests: Sequence[Request], sampling: Sampling, bound: BoundExploration) -> list[Rollout]:
        """Generates with the engine.

        Raises:
            EngineFailure: it makes no rollouts.
        """
        report = None if self.observer is None else self.observer.generating(len(requests))
        with engine_failures(bound.strategy):
            self._check_lost()
            return self.engine.generate(requests, sampling, bound, report)

    def _transfer_again(self, restart: bool) -> None:
        """Transfers the weights that the engine had, after a restart if it failed; the tables stay as they are."""
        bound = self._bound
        if self.weights is not None:
            learned = self.weights.learned_exploration()
            self.sync_weights(self.weights.named_weights(), refresh=False, learned=learned, restart=restart)
        elif restart:
            with engine_failures():
                self._make_ready(restart)
        self._bound = bound

    def close(self) -> None:
        """Frees engine and reward."""
        close = getattr(self.reward, "close", None)  # a function has nothing to free
        if close is not None:
            close()
        self.engine.close()

    def _texts_to_score(self, prompts: Sequence[Prompt], samples: int, texts: Sequence[str]) -> list[str]:
        """Returns the responses as the reward gets them, each after the reasoning marker that its prompt ends with."""
        openings = [self._opening(prompt) for prompt in prompts for _ in range(samples)]
        return [opening + text for opening, text in zip(openings, texts, strict=True)]

    def _completions(self, rollouts: Sequence[Rollout], texts: Sequence[str]) -> list[str]:
        """Returns the responses without the token that ended them."""
        ends = {number: self.tokenizer.decode([number]) for number in self.sampling.stop_ids}
        return [
            text.removesuffix(ends.get(int(rollout.response_ids[-1]), ""))
            if rollout.stop_reason is StopReason.STOP
            else text
            for rollout, text in zip(rollouts, texts, strict=True)
        ]

    def _opening(self, prompt: Prompt) -> str:
        """Returns the reasoning marker that the prompt ends with, if it does."""
        return opening(self.tokenizer.decode(list(prompt.ids[-_TAIL:])))
