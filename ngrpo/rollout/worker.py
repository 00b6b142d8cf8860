"""The rollout worker of a rank, which makes scored rollouts of prompts with its engine, strategy and reward."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from torch import Tensor

from ngrpo.compat.attributes import serve_old_names
from ngrpo.distributed.collectives import from_first, gathered
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.rewards.functions.columns import columns_of
from ngrpo.rewards.protocol import Reward
from ngrpo.rewards.terms.base import Responses, RewardTerms, Stateful, WeightedTerm
from ngrpo.rewards.terms.calls import scored
from ngrpo.rollout.continuous_refill import GrowingProgress, ScoredGroups, refilled_rounds
from ngrpo.rollout.dynamic_sampling import DynamicSampling
from ngrpo.rollout.engine import Report, RolloutEngine, StreamingEngine
from ngrpo.rollout.graded_scores import warn_of_graded
from ngrpo.rollout.nonfinite_scores import warn_of_nonfinite
from ngrpo.rollout.recovery import engine_failures, stream_failures
from ngrpo.rollout.response_decoding import ResponseDecoder
from ngrpo.rollout.returned_rollouts import check_steered, check_supports
from ngrpo.rollout.scheduling.base import LearningScheduler
from ngrpo.rollout.scheduling.growth import grow
from ngrpo.rollout.scheduling.outcomes import group_outcomes
from ngrpo.rollout.served_engine import ServedEngine
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.types.experience import Experience
from ngrpo.types.problems import Prompt
from ngrpo.types.rollouts import Request, Rollout, Sampling

serve_old_names(__name__)

_EVALUATION = -1
"""Stands for the iteration in the keys of evaluation rollouts: each evaluation draws the same randomness."""


class Observer(Protocol):
    """A listener to the progress of rollouts, such as a status line."""

    def generating(self, total: int) -> Report:
        """Called when so many rollouts are started; returns what the engine reports to."""

    def scoring(self, total: int) -> None:
        """Called when so many responses are to be scored."""


class RolloutWorker(ServedEngine):
    """Makes and scores rollouts on one rank, for its tensor group.

    Attributes:
        observer: hears of its progress, if set.

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
        super().__init__(engine, exploration, Vocabulary.of(tokenizer), learned)
        self.tokenizer = tokenizer
        self.reward = reward
        self.settings = settings
        self.seed = seed
        self.terms = RewardTerms(terms)
        recorded = settings.scheduler.reads_distributions
        self.sampling = Sampling(settings.temperature, settings.max_new_tokens, stop_ids, recorded)
        self.observer: Observer | None = None
        self._decoder = ResponseDecoder(tokenizer)
        self._told_nonfinite = False
        self._told_graded = False

    def reward_state(self) -> dict[str, Any]:
        """Returns the state of the reward and of its terms on this rank."""
        reward = self.reward.state_dict() if isinstance(self.reward, Stateful) else {}
        return {"reward": reward, "terms": self.terms.state_dict()}

    def load_reward_state(self, state: Mapping[str, Any]) -> None:
        """Restores it."""
        if state["reward"] and isinstance(self.reward, Stateful):
            self.reward.load_state_dict(state["reward"])
        self.terms.load_state_dict(state["terms"])

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
            lambda asked: self._steered(asked, bound),
        )
        rollouts = [leaf for tree in trees for leaf in tree.leaves]
        check_supports(rollouts, self.engine, self.exploration)
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
        texts = self._decoder.judged(experience.prompts, size, experience.texts)
        completions = self._decoder.completions(experience.rollouts, experience.texts, self.sampling.stop_ids)
        responses = Responses(problems, experience.rollouts, texts, experience.scores, completions)
        return replace(experience, terms=from_first(lambda: self.terms(responses)))

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
            check_supports(rollouts, self.engine, self.exploration)
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
        texts = self._decoder.texts(rollouts)
        problems = [prompt.problem for prompt in prompts for _ in range(samples)]
        references = [problem.answer for problem in problems]
        keys = [problem.key for problem in problems]
        questions = [problem.question for problem in problems]
        completions = self._decoder.completions(rollouts, texts, self.sampling.stop_ids)
        columns = {"completions": completions, **columns_of(problems)}
        judged = self._decoder.judged(prompts, samples, texts)
        scores = scored(self.reward, judged, references, keys, questions, columns)
        self._told_graded = self._told_graded or warn_of_graded(scores)
        reward_s = time.perf_counter() - start
        return Experience(prompts, rollouts, keys, texts, scores, generate_s, reward_s, finished=finished)

    def _steered(self, requests: Sequence[Request], bound: BoundExploration) -> list[Rollout]:
        """Generates what the scheduler asks for."""
        rollouts = self._generate(requests, self.sampling, bound)
        check_steered(requests, rollouts, self.engine, self.settings.scheduler)
        return rollouts

    def _generate(self, requests: Sequence[Request], sampling: Sampling, bound: BoundExploration) -> list[Rollout]:
        """Generates with the engine.

        Raises:
            EngineFailure: it makes no rollouts.
        """
        report = None if self.observer is None else self.observer.generating(len(requests))
        with engine_failures(bound.strategy):
            self._check_lost()
            return self.engine.generate(requests, sampling, bound, report)

    def close(self) -> None:
        """Frees engine and reward."""
        close = getattr(self.reward, "close", None)  # a function has nothing to free
        if close is not None:
            close()
        self.engine.close()
