"""Exploration for TRL: `ExploringGRPOTrainer`, and the mixin that it is made of.

    ExploringGRPOTrainer(model, reward_funcs, args, train_dataset, exploration=NeighborMixing(rate=0.1)).train()

Rollouts are made by an engine of this project in the process, from TRL's present weights. Whatever log-probs TRL then
computes of them (policy, old policy, reference) it computes on the inputs that the rollouts saw; its losses, and all
else that follows from the log-probs, stay its own.

TRL's GRPOTrainer has two methods without a public name that are wrapped here, so that only the version that this was
tested with is taken.
"""

import atexit
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any
from weakref import ref

import torch
from torch import nn
from transformers import PreTrainedModel

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.plugins.prompts import check_texts
from ngrpo.plugins.strategies import check_scored_by_token
from ngrpo.plugins.trl_weights import SameArchitecture, check_weights, whole_weights
from ngrpo.replay.hook import replayed
from ngrpo.replay.records import RecordTensors
from ngrpo.rewards.reasoning import opening
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling, StopReason
from ngrpo.utils.optional_packages import require

require("trl", "ngrpo.plugins.trl")

from trl import GRPOTrainer  # noqa: E402
from trl.data_utils import is_conversational  # noqa: E402

TESTED = "1.16."
"""How the versions of TRL begin whose trainer is known."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (1.0,),
    "top_k": (0, -1, None),
    "min_p": (None, 0.0),
    "repetition_penalty": (1.0,),
    "generation_kwargs": (None, {}),
    "use_vllm": (False,),
    "use_transformers_continuous_batching": (False,),
    "vllm_structured_outputs_regex": (None,),
    "vllm_importance_sampling_mode": ("sequence_mask",),
    "vllm_importance_sampling_clip_max": (3.0,),
    "vllm_importance_sampling_clip_min": (None,),
}
"""Settings of GRPOConfig for rollouts that TRL makes itself, with the values that change nothing."""

_Trainer: Any = object
"""What the mixin stands before is a GRPOTrainer."""


class ExplorationMixin(_Trainer):
    """Put before GRPOTrainer: rollouts with exploration, and all of TRL's log-probs on what the rollouts saw.

    Reward functions get a further argument ``response_text`` beside TRL's: the response with its special tokens, after
    the reasoning marker that the prompt ends with (`ngrpo.rewards.reasoning`).

    Logged beside TRL's metrics: ``exploration/mixed``, the fraction of response tokens that were mixed, and
    ``exploration/replay_difference``, the largest difference between a log-prob of the rollout and TRL's first one.

    Args:
        args: of GRPOTrainer.
        exploration: the strategy; scored by token.
        engine: makes the rollouts; None is the PyTorch engine on the trainer's device. One that is started here.
        kwargs: of GRPOTrainer.

    Raises:
        SettingError: the strategy, or a setting of TRL's, cannot be used.
    """

    def __init__(
        self, *args: Any, exploration: Exploration, engine: RolloutEngine | None = None, **kwargs: Any
    ) -> None:
        _check_version()
        check_scored_by_token(exploration, "TRL")
        for name in ("tools", "environment_factory", "rollout_func"):
            if kwargs.get(name):
                raise SettingError(f"{name}= makes rollouts of its own, without exploration; leave it out.")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
            super().__init__(*args, rollout_func=_roll_out, **kwargs)
        _check_settings(self.args)
        policy = self.accelerator.unwrap_model(self.model)
        check_weights(policy)
        self.exploration = exploration
        self.engine = engine or TorchEngine(_source(policy))
        _check_engine(self.engine, self.accelerator.num_processes)
        self.engine.start(self.accelerator.device)
        _close_at_exit(self.engine)
        self._bound: BoundExploration | None = None
        self._bound_at = 0
        self._calls = {True: (0, 0), False: (0, 0)}  # of training and evaluation: a step, and how many it has had
        self._rollouts: Sequence[Rollout] = ()
        self._records: RecordTensors | None = None

    def explore(self, prompt_ids: Sequence[Sequence[int]]) -> list[Rollout]:
        """Makes a rollout a prompt with the policy's present weights; plain ones during evaluation.

        The rollouts depend on ``args.seed``, the step and the place in the batch, not on the number of processes that
        share it, nor on whether evaluations come between.
        """
        step, training = self.state.global_step, self.model.training
        before, calls = self._calls[training]
        calls = calls if before == step else 0
        self._calls[training] = (step, calls + 1)
        self.engine.wake()
        self.engine.sync_weights(whole_weights(self.accelerator.unwrap_model(self.model)))
        first = self.accelerator.process_index * len(prompt_ids)
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        requests = [
            Request(tuple(ids), request_key(seed, step, calls, int(training), first + row), explore=training)
            for row, ids in enumerate(prompt_ids)
        ]
        sampling = Sampling(self.temperature, self.max_completion_length, tuple(self.eos_token_ids))
        self._rollouts = self.engine.generate(requests, sampling, self._strategy_at(step))
        self.engine.sleep()
        return list(self._rollouts)

    def _strategy_at(self, step: int) -> BoundExploration:
        every = self.exploration.refresh_every
        if self._bound is None or (every and step - self._bound_at >= every):
            vocabulary = Vocabulary.of(self.processing_class)
            self._bound, self._bound_at = bind(self.exploration, self.engine.embedding(), vocabulary), step
        return self._bound.after(step)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        # Old and reference log-probs are computed in here, of the rollouts in the order in which they were made.
        self._records = None
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        records = self._placed(output["prompt_ids"].shape[1], output["completion_ids"].shape[1])
        output |= records.to(output["prompt_ids"].device).tensors()
        counts = torch.tensor([[len(r.mixture.positions), r.length] for r in self._rollouts]).sum(0)
        mixed, tokens = self.accelerator.reduce(counts.to(self.accelerator.device)).tolist()
        self._log("mixed", mixed / tokens)
        return output

    def _placed(self, prompt_width: int, response_width: int) -> RecordTensors:
        """Returns the records as TRL lays rows out: prompts end, and responses begin, at one column."""
        places = torch.zeros(len(self._rollouts), prompt_width + response_width, dtype=torch.bool)
        for row, rollout in enumerate(self._rollouts):
            places[row, prompt_width - len(rollout.prompt_ids) : prompt_width + rollout.length] = True
        return RecordTensors.of(self._rollouts, places)

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Returns TRL's loss of rows whose records are replayed."""
        self._records = RecordTensors.from_tensors(inputs)
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        if self.model.training and self._step % (self.args.steps_per_generation * self.num_iterations) == 0:
            difference = (self._scores - inputs["sampling_per_token_logps"]) * inputs["completion_mask"]
            self._log("replay_difference", self.accelerator.gather(difference.abs().max()).max().item())
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        records = self._records or self._placed(input_ids.shape[1] - logits_to_keep, logits_to_keep)
        parts = []
        for start in range(0, len(input_ids), batch_size or len(input_ids)):  # as TRL cuts them
            rows = slice(start, start + (batch_size or len(input_ids)))
            with replayed(self.accelerator.unwrap_model(model), records[rows], self.exploration):
                given = (input_ids[rows], attention_mask[rows], logits_to_keep)
                parts.append(super()._get_per_token_logps_and_entropies(model, *given, **options))
        self._scores = torch.cat([part[0] for part in parts]).detach()
        if len(parts) == 1:
            return parts[0]
        entropies = torch.cat([part[1] for part in parts]) if parts[0][1] is not None else None
        losses = torch.stack([part[2] for part in parts]).mean() if parts[0][2] is not None else None
        return torch.cat([part[0] for part in parts]), entropies, losses

    def _log(self, name: str, value: float) -> None:
        self._metrics["train" if self.model.training else "eval"][f"exploration/{name}"].append(value)


class ExploringGRPOTrainer(ExplorationMixin, GRPOTrainer):
    """TRL's GRPOTrainer with exploration at the embedding level; see `ExplorationMixin` for what is added."""


def _check_version() -> None:
    if not version("trl").startswith(TESTED):
        raise SettingError(
            f"trl {version('trl')} is none that ExploringGRPOTrainer was tested with; run pip install 'ngrpo[trl]'."
        )


def _check_settings(args: Any) -> None:
    for name, values in _NEUTRAL.items():
        if getattr(args, name) not in values:
            raise SettingError(
                f"{name}={getattr(args, name)} is for rollouts that TRL makes, and engine= makes them; leave it out."
            )
    if args.max_completion_length is None:
        raise SettingError("max_completion_length=None bounds no response; choose a number of tokens.")
    if args.neftune_noise_alpha:
        raise SettingError(
            f"neftune_noise_alpha={args.neftune_noise_alpha} adds noise to inputs that the rollouts did not see; leave "
            "it out."
        )
    if args.deepspeed or (args.fsdp and args.fsdp_config.get("version", 1) == 1):
        raise SettingError(
            "the weights of DeepSpeed and of FSDP 1 cannot be gathered for the engine; use DDP or FSDP 2."
        )


def _check_engine(engine: RolloutEngine, processes: int) -> None:
    if processes > 1 and not engine.several_ranks:
        raise SettingError(
            f"engine={type(engine).__name__} as configured runs beside one training process, and there are "
            f"{processes}; give VllmEngine own_process=True and tensor_parallel_size=1, or RemoteEngine."
        )


def _close_at_exit(engine: RolloutEngine) -> None:
    """Ends an engine with the process, if it is still there: vLLM complains of memory that it has not freed."""
    kept = ref(engine)

    def close() -> None:
        left = kept()
        if left is not None:
            left.close()

    atexit.register(close)


def _source(policy: Any) -> SameArchitecture:
    lm = policy.get_base_model() if hasattr(policy, "peft_config") else policy
    if not isinstance(lm, PreTrainedModel):
        raise SettingError(f"model={type(lm).__name__} is no model of transformers; give one, or its name.")
    return SameArchitecture.of(lm)  # type: ignore[return-value]


def _roll_out(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
    """TRL's ``rollout_func``: what each prompt's response was, with fields that its reward functions get."""
    tokenizer = trainer.processing_class
    if is_conversational({"prompt": prompts[0]}):
        check_texts(prompts)
        template = {"chat_template": trainer.chat_template, **trainer.chat_template_kwargs}
        template |= {"add_generation_prompt": True, "tokenize": True, "return_dict": True}
        prompt_ids = tokenizer.apply_chat_template(prompts, **template)["input_ids"]
    else:
        prompt_ids = tokenizer(text=prompts)["input_ids"]
    rollouts = trainer.explore(prompt_ids)
    return {
        "prompt_ids": [list(ids) for ids in prompt_ids],
        "completion_ids": [rollout.response_ids.tolist() for rollout in rollouts],
        "logprobs": [rollout.log_probs.tolist() for rollout in rollouts],
        "response_text": [_text(rollout, tokenizer) for rollout in rollouts],
    }


def _text(rollout: Rollout, tokenizer: Any) -> str:
    """Returns a response without the token that ended it, after the marker that its prompt opens the reasoning with."""
    said = rollout.response_ids[:-1] if rollout.stop_reason is StopReason.STOP else rollout.response_ids
    return opening(tokenizer.decode(rollout.prompt_ids[-8:])) + tokenizer.decode(said)
