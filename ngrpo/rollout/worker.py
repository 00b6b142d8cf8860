"""The rollout worker of a rank, which makes scored rollouts of prompts with its engine, strategy and reward."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from ngrpo.distributed.collectives import from_first, ranks
from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.exploration.runtime.strategy_errors import StrategyError, from_strategy
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.rewards.functions.columns import columns_of
from ngrpo.rewards.terms.base import Responses, RewardTerms, Stateful, WeightedTerm
from ngrpo.rewards.terms.calls import scored
from ngrpo.rollout.continuous_refill import GrowingProgress, ScoredGroups, refilled_rounds
from ngrpo.rollout.dynamic_sampling import DynamicSampling
from ngrpo.rollout.engine import Report, RolloutEngine, StreamingEngine
from ngrpo.rollout.null_engine import NullEngine
from ngrpo.rollout.recovery import EngineFailure
from ngrpo.types.experience import Experience
from ngrpo.types.problems import Prompt
from ngrpo.types.rollouts import Request, Rollout, Sampling, StopReason
from ngrpo.types.scores import Score
from ngrpo.utils.out_of_memory import out_of_memory

_EVALUATION = -1
"""Stands for the iteration in the keys of evaluation rollouts: each evaluation draws the same randomness."""

_SHOWN = 300
"""Characters of an engine's error that are quoted."""

_REASONING = "<think>"
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
    """

    group_size: int = 8
    max_new_tokens: int = 64
    temperature: float = 1.0
    ahead: int = 0

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
        self.engine = engine
        self.tokenizer = tokenizer
        self.reward = reward
        self.exploration = exploration
        self.settings = settings
        self.seed = seed
        self.terms = RewardTerms(terms)
        self.vocabulary = Vocabulary.of(tokenizer)
        self.sampling = Sampling(settings.temperature, settings.max_new_tokens, stop_ids)
        self.device = torch.device("cpu")
        self.observer: Observer | None = None
        self._bound: BoundExploration | None = None
        self._learned = learned
        self._finished = 0

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
                f"the rollout engine could not start ({_quoted(error)}); choose another model, change rollout.engine, "
                "or take another engine such as rollout=torch."
            ) from error

    def sync_weights(
        self,
        tensors: Iterable[tuple[str, Tensor]],
        refresh: bool,
        learned: Mapping[str, Tensor] | None = None,
        loaded: bool = False,
        finished: int | None = None,
    ) -> None:
        """Transfers new weights to the engine; ``refresh`` rebuilds the strategy's tables from them.

        Args:
            tensors: the model's, by transformers name.
            refresh: rebuild the tables.
            learned: the strategy's own parameters; None leaves the initial ones.
            loaded: they are exactly the weights that the engine has loaded, see `RolloutEngine.sync_loaded`.
            finished: training iterations behind these weights, which a strategy may read; None leaves the number.
        """
        self._transfer(tensors, self.engine.sync_loaded if loaded else self.engine.sync_weights)
        self._learned = learned
        self._finished = self._finished if finished is None else finished
        if refresh:
            self._bound = None
        elif self._bound is not None:
            self._bound = replace(self._bound, parameters=learned or {}).after(self._finished)

    @property
    def bound(self) -> BoundExploration:
        """The training strategy with its tables, its parameters and the finished iterations of the engine's weights."""
        if self._bound is None:
            bound = bind(self.exploration, self.engine.embedding(), self.vocabulary, self._learned)
            self._bound = bound.after(self._finished)
        return self._bound

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
            bound = bind(self.exploration, self.engine.embedding(), self.vocabulary, self._learned, tables)
            self._bound = bound.after(self._finished)

    def roll_out(self, prompts: list[Prompt], iteration: int) -> Experience:
        """Makes ``group_size`` training rollouts a prompt, scored for correctness; talks to no other rank."""
        return self._make_experience(prompts, self.settings.group_size, iteration, self.sampling, self.bound)

    def shape_rewards(self, experience: Experience) -> Experience:
        """Adds the reward terms to an iteration's rollouts; once an iteration, since terms may count (a collective)."""
        size = experience.group_size
        problems = [prompt.problem for prompt in experience.prompts for _ in range(size)]
        texts = self._texts_to_score(experience.prompts, size, experience.texts)
        completions = self._completions(experience.rollouts, experience.texts)
        responses = Responses(problems, experience.rollouts, texts, experience.scores, completions)
        return replace(experience, terms=from_first(lambda: self.terms(responses)))

    def evaluate(self, prompts: list[Prompt], samples: int, strategy: Exploration, temperature: float) -> Experience:
        """Makes ``samples`` evaluation rollouts a prompt with ``strategy``, plain sampling as a rule (a collective)."""
        return from_first(lambda: self._evaluate(prompts, samples, strategy, temperature))

    def _evaluate(self, prompts: list[Prompt], samples: int, strategy: Exploration, temperature: float) -> Experience:
        learned = self._learned if strategy == self.exploration else None
        bound = bind(strategy, self.engine.embedding(), self.vocabulary, learned).after(self._finished)
        sampling = replace(self.sampling, temperature=temperature)
        return self._make_experience(prompts, samples, _EVALUATION, sampling, bound)

    def roll_out_refilled(
        self,
        prompts: list[Prompt],
        iteration: int,
        draw: Callable[[int], list[Prompt]],
        dynamic_sampling: DynamicSampling,
    ) -> list[Experience]:
        """Makes what `roll_out` makes in the rounds of dynamic sampling, without waiting for one to end.

        Needs a `StreamingEngine`; rewards are called group by group, in the order in which groups finish.

        Args:
            prompts: of the first round.
            iteration: of the batch.
            draw: returns so many further prompts.
            dynamic_sampling: which groups are dropped.

        Returns:
            An experience a round.
        """
        assert isinstance(self.engine, StreamingEngine)
        size, bound = self.settings.group_size, self.bound
        progress = None if self.observer is None else GrowingProgress(self.observer.generating)

        def score(prompt: Prompt, rollouts: list[Rollout], seconds: float) -> Experience:
            return self._scored([prompt], size, rollouts, seconds, int(bound.progress))

        def requests(further: Sequence[Prompt]) -> list[Request]:
            if progress is not None:
                progress.grow(len(further) * size)
            return self._requests(further, size, iteration)

        with (
            _engine_errors(bound.strategy),
            self.engine.stream(self.sampling, bound, len(prompts) * size, progress) as stream,
        ):
            return refilled_rounds(ScoredGroups(stream, size, requests, score), prompts, draw, dynamic_sampling)

    def _make_experience(
        self, prompts: list[Prompt], samples: int, iteration: int, sampling: Sampling, bound: BoundExploration
    ) -> Experience:
        start = time.perf_counter()
        rollouts = self._generate(self._requests(prompts, samples, iteration), sampling, bound)
        return self._scored(prompts, samples, rollouts, time.perf_counter() - start, int(bound.progress))

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
        reward_s = time.perf_counter() - start
        return Experience(prompts, rollouts, keys, texts, scores, generate_s, reward_s, finished=finished)

    def _transfer(
        self, tensors: Iterable[tuple[str, Tensor]], take: Callable[[Iterable[tuple[str, Tensor]]], None]
    ) -> None:
        try:
            take(tensors)
        except (SettingError, RunError):
            raise
        except Exception as error:
            raise EngineFailure(_quoted(error)) from error

    def _generate(self, requests: Sequence[Request], sampling: Sampling, bound: BoundExploration) -> list[Rollout]:
        """Generates with the engine.

        Raises:
            EngineFailure: it makes no rollouts. An exception of the strategy's own code passes as it is: a rebuilt
                engine would only raise it again.
        """
        report = None if self.observer is None else self.observer.generating(len(requests))
        with _engine_errors(bound.strategy):
            return self.engine.generate(requests, sampling, bound, report)

    def rebuild(
        self, tensors: Iterable[tuple[str, Tensor]], learned: Mapping[str, Tensor] | None, failed: bool
    ) -> None:
        """Transfers the weights to the engine, after a restart if it failed; the tables stay as they are."""
        bound = self._bound
        if failed:
            self.engine.close()
            self.engine.start(self.device)
        self.sync_weights(tensors, refresh=False, learned=learned)
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
        """Returns the reasoning marker that the prompt ends with, if it does.

        The reward sees it before the response: otherwise a response cut off inside the block could not be told from
        one of a model that opens no block, and a box inside unfinished reasoning would count.
        """
        tail = self.tokenizer.decode(list(prompt.ids[-_TAIL:]))
        return _REASONING if tail.rstrip().endswith(_REASONING) else ""


@contextmanager
def _engine_errors(strategy: Exploration) -> Iterator[None]:
    """Calls what an engine raises an `EngineFailure`, unless it is about a setting or the user's own code."""
    try:
        yield
    except (SettingError, RunError, StrategyError):
        raise
    except Exception as error:
        if from_strategy(error, strategy):
            raise
        raise EngineFailure(_quoted(error)) from error


def _quoted(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_SHOWN]}"
