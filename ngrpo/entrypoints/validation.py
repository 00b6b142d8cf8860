"""Faults that lie between settings; found before any model is loaded."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from transformers import PretrainedConfig

from ngrpo.algo.correction import NoCorrection
from ngrpo.algo.kl import k1
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.data.curriculum import Curriculum, SampledByPassRate
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.rope import positions_of
from ngrpo.modeling.tensor_parallel import SETTING, check_split
from ngrpo.rewards.terms.base import WeightedTerm
from ngrpo.rollout.dynamic_sampling import DynamicSampling
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.worker import RolloutSettings
from ngrpo.training.critic_update import CriticSettings

log = logging.getLogger(__name__)


def check_group(algorithm: Algorithm, rollout: RolloutSettings) -> None:
    """A group-relative advantage needs a group."""
    advantage = _inner(algorithm.advantage)
    if rollout.group_size == 1 and getattr(advantage, "group_relative", False):
        raise SettingError(
            f"rollout.group_size=1 leaves nothing to compare with, and algo.advantage={advantage.__name__} compares "
            "the rollouts of a group; set rollout.group_size to 2 or more."
        )


def check_algorithm(algorithm: Algorithm) -> None:
    """Parts of an algorithm that contradict each other."""
    advantage, ratio = _inner(algorithm.advantage), _inner(algorithm.ratio)
    credit = type(algorithm.credit).__name__
    if algorithm.credit.token_level and getattr(ratio, "one_advantage", False):
        raise SettingError(
            f"algo.credit={credit} tells the tokens of a response apart, and algo.ratio={ratio.__name__} "
            "makes one clip decision a response; set algo/ratio=token or algo/ratio=sequence_token."
        )
    if algorithm.kl_in == "reward" and algorithm.kl_coef == 0:
        raise SettingError(
            "algo.kl_in=reward takes the KL off the reward algo.kl_coef=0 times; raise algo.kl_coef, or set "
            "algo.kl_in=loss."
        )
    if algorithm.kl_in == "reward" and not algorithm.credit.token_level and getattr(advantage, "thresholded", False):
        raise SettingError(
            f"algo.kl_in=reward takes the KL off the reward by whose size algo.advantage={advantage.__name__} tells "
            "right from wrong; set algo.kl_in=loss."
        )
    if algorithm.kl_in == "loss" and algorithm.kl_coef > 0 and _inner(algorithm.kl) is k1:
        log.warning("algo/kl=k1 in the loss has an expected gradient of zero: it adds noise, see ngrpo.algo.kl")


def check_shaping(algorithm: Algorithm, terms: Sequence[WeightedTerm]) -> None:
    """Nothing may be added to a reward whose size says whether the answer is right."""
    advantage = _inner(algorithm.advantage)
    if terms and getattr(advantage, "thresholded", False):
        raise SettingError(
            f"reward_terms={[term.name for term in terms]} changes the reward by whose size "
            f"algo.advantage={advantage.__name__} tells right from wrong; set reward_terms=[]."
        )


def check_critic(algorithm: Algorithm, critic: CriticSettings | None) -> None:
    """A critic is trained exactly where something uses its values."""
    credit = type(algorithm.credit).__name__
    if algorithm.credit.needs_values and critic is None:
        raise SettingError(f"algo.credit={credit} needs a critic, and critic=null; set critic=value_head.")
    if critic is not None and not algorithm.credit.needs_values:
        raise SettingError(
            f"critic={type(critic).__name__} would be trained for nothing, since algo.credit={credit} uses no values; "
            "set critic=null, or algo/credit=gae."
        )


def check_ranks(algorithm: Algorithm, ranks: int) -> None:
    """Every rank takes an equal share of every minibatch."""
    shares = algorithm.optimizer_steps * ranks
    if algorithm.prompts_per_batch % shares:
        raise SettingError(
            f"algo.prompts_per_batch={algorithm.prompts_per_batch} is not divisible by "
            f"algo.optimizer_steps={algorithm.optimizer_steps} x {ranks} data-parallel processes; make it a multiple "
            f"of {shares}."
        )


def check_engine(engine: RolloutEngine, ranks: int) -> None:
    """Not every engine can live in each of several training processes."""
    if ranks > 1 and not engine.several_ranks:
        raise SettingError(
            f"rollout.engine={type(engine).__name__} as configured runs beside one training process, and "
            f"trainer.devices x trainer.num_nodes={ranks}; set rollout.engine.own_process=true with "
            "rollout.engine.tensor_parallel_size=1, or rollout=torch."
        )


def check_ahead(
    rollout: RolloutSettings,
    engine: RolloutEngine,
    algorithm: Algorithm,
    selection: DynamicSampling,
    curriculum: Curriculum,
) -> None:
    """Making rollouts beside the update needs an engine beside it, and weights for rollouts of an older policy."""
    if rollout.ahead == 0:
        return
    if not engine.concurrent:
        raise SettingError(
            f"rollout.ahead={rollout.ahead} makes rollouts during the update, and rollout.engine="
            f"{type(engine).__name__} as configured takes turns with it; set rollout.engine.own_process=true."
        )
    if isinstance(algorithm.correction, NoCorrection):
        raise SettingError(
            f"rollout.ahead={rollout.ahead} trains on rollouts of an older policy, and algo.correction=NoCorrection "
            "does not weigh them; set algo/correction=truncate."
        )
    if selection.max_refills:
        raise SettingError(
            f"rollout.ahead={rollout.ahead} makes a batch before its turn, and selection.max_refills="
            f"{selection.max_refills} draws further prompts for it; set selection.max_refills=0."
        )
    if isinstance(curriculum, SampledByPassRate):
        raise SettingError(
            f"rollout.ahead={rollout.ahead} draws prompts before the pass rates of the batch before are known, and "
            "data.curriculum=SampledByPassRate draws by them; set data/curriculum=every_problem."
        )


def check_tensor_parallel(source: ModelSource, processes: int, size: int) -> None:
    """The processes must fall into equal tensor groups, and the model into as many equal parts."""
    setting = f"{SETTING}={size}"
    if size < 1 or processes % size:
        raise SettingError(
            f"{setting} does not divide the trainer.devices x trainer.num_nodes={processes} processes; choose a "
            "divisor of them."
        )
    if size > 1 and source.lora is not None:
        raise SettingError(
            f"{setting} splits layers that model.lora.rank={source.lora.rank} puts adapters into, which is not "
            f"supported; set model.lora=null, or {SETTING}=1."
        )
    if size > 1 and source.compile:
        raise SettingError(
            f"{setting} splits layers into what model.compile=true cannot compile; set model.compile=false, or "
            f"{SETTING}=1."
        )
    check_split(source.config(), size)


def check_lora(source: ModelSource, ranks: int) -> None:
    """FSDP shards the parameters of a layer together, and adapters are float32."""
    if ranks > 1 and source.lora is not None and source.dtype != "float32":
        raise SettingError(
            f"model.dtype={source.dtype} cannot be sharded with the float32 adapters of model.lora; set "
            "model.dtype=float32 (and trainer.precision=bf16-mixed)."
        )


def check_support(exploration: Exploration) -> None:
    """The trainer scores the full softmax."""
    if exploration.truncates:
        raise SettingError(
            f"exploration={exploration} draws from a truncated distribution, whose log-probs the trainer does not "
            "score; keep it for callbacks.evaluation.evaluator.exploration and train with exploration=token, "
            "top_k=0 and top_p=1.0, or a strategy that mixes."
        )


def warn_of_equal_groups(exploration: Exploration) -> None:
    """Says so when the rollouts of a group cannot differ."""
    if exploration.deterministic:
        log.warning(
            "exploration=%s draws nothing while it mixes: the rollouts of a group are identical up to the end of the "
            "reasoning, and nothing is learned from rollouts that do not differ; what supplies diversity are the "
            "ordinary draws after it, or exploration.rate < 1",
            type(exploration).__name__,
        )


def check_context(config: PretrainedConfig, max_prompt_tokens: int, max_new_tokens: int) -> None:
    """Prompt and response must fit the positions that the model can be run on with one set of frequencies."""
    limit = positions_of(config)
    if limit is not None and max_prompt_tokens + max_new_tokens > limit:
        raise SettingError(
            f"data.max_prompt_tokens={max_prompt_tokens} + rollout.max_new_tokens={max_new_tokens} exceeds the "
            f"model's {limit} positions; lower one of them."
        )


def _inner(function: Any) -> Any:
    return function.func if isinstance(function, partial) else function
