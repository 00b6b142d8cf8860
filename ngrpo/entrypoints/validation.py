"""Checks of settings against each other, before any model is loaded.

Where a check belongs, here and elsewhere:

- a class checks its own values, in ``__post_init__`` or ``__init__``; how large a number may be at all is in
  `ngrpo.config.ranges`;
- what lies between settings, or what a part cannot check when it is made (a function, an optimiser without parameters),
  is here, called by `check_run`, `check_settings` and `check_evaluation`;
- what shows only against tokenizer, model or machine is in `ngrpo.entrypoints.input_validation`.

Each of those functions is called in one place, and raises before any model is loaded.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from typing import Any

import torch
from omegaconf import DictConfig
from torch.optim import Optimizer

from ngrpo.algo.best import Bounds
from ngrpo.algo.correction import NoCorrection
from ngrpo.algo.kl import k1
from ngrpo.algo.marks import inner, is_marked, keeps_k, keywords, of_sequence, one_advantage, reads_log_prob
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.within_group import MoreOfHardPrompts
from ngrpo.config.allowlist import below
from ngrpo.config.schema import TrainerConfig
from ngrpo.data.curriculum import Curriculum, SampledByPassRate
from ngrpo.entrypoints.algorithm_trial import try_algorithm
from ngrpo.entrypoints.components import Components
from ngrpo.entrypoints.exact_check import check_exact_training
from ngrpo.entrypoints.scheduler_trial import try_scheduler
from ngrpo.entrypoints.trainer import has_unknown_devices
from ngrpo.errors import SettingError, first_line
from ngrpo.evaluation.evaluator import Evaluator
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.tensor_parallel import SETTING
from ngrpo.rewards.terms.base import WeightedTerm, bounds_of
from ngrpo.rollout.dynamic_sampling import DynamicSampling
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.training.critic_update import CriticSettings
from ngrpo.training.update_settings import UpdateSettings

log = logging.getLogger(__name__)

_STEEPNESS = ("tau_pos", "tau_neg")


def check_run(config: DictConfig) -> None:
    """Something must make rollouts, and train on them.

    Raises:
        SettingError: nothing would.
    """
    if config.callbacks.get("rollout") is None:
        raise SettingError("callbacks.rollout=null leaves nothing that makes rollouts; take it out.")
    if config.trainer.iterations < 1:
        raise SettingError(f"trainer.iterations={config.trainer.iterations} trains nothing; choose 1 or more.")
    limit = config.trainer.max_generated_tokens
    if limit is not None and limit < 1:
        raise SettingError(
            f"trainer.max_generated_tokens={limit} generates nothing; choose 1 or more, or null for no limit."
        )


def check_settings(parts: Components, config: DictConfig) -> None:
    """Checks whether the parts of a training fit together, and warns of what is rarely meant.

    Raises:
        SettingError: they do not.
    """
    algorithm, exploration = parts.algorithm, parts.exploration
    check_tensor_parallel(parts.source, config.trainer, parts.processes)
    check_algorithm(algorithm)
    check_clip(algorithm)
    check_shaping(algorithm, parts.terms)
    check_rewards(algorithm, bounds_of(parts.reward, parts.terms))
    check_critic(algorithm, parts.critic)
    check_group(algorithm, parts.rollout)
    try_algorithm(algorithm, parts.rollout.group_size)
    check_ranks(algorithm, parts.ranks)
    check_precision(parts.source, parts.update)
    check_lora(parts.source, parts.processes)
    check_support(exploration)
    check_scheduler(parts.rollout, exploration)
    warn_of_equal_groups(exploration)
    check_engine(parts.engine, parts.processes)
    check_ahead(parts.rollout, parts.engine, algorithm, parts.selection, parts.curriculum)
    check_exact_training(parts, config)
    check_schedule(parts.update.learning_rate(0, 0.0))
    check_optimizer(parts.optimizer, "trainer.optimizer", config.trainer.optimizer)
    if parts.critic is not None:
        check_optimizer(parts.critic.optimizer, "critic.optimizer", config.critic.optimizer)


def check_evaluation(config: DictConfig, evaluator: Evaluator) -> None:
    """Something must be evaluated, with a strategy.

    Raises:
        SettingError: nothing would.
    """
    if config.problems_at_once < 1:
        raise SettingError(f"problems_at_once={config.problems_at_once} evaluates nothing; choose 1 or more.")
    exploration: Any = evaluator.exploration
    if not isinstance(exploration, Exploration):
        made = type(exploration).__name__
        raise SettingError(
            f"evaluator.exploration makes a {made}; name a strategy, such as those of ngrpo.exploration."
        )
    if config.devices != 1 and config.rollout.engine.get("tensor_parallel_size", 1) != 1:
        raise SettingError(
            f"devices={config.devices} gives each replica of the model one device, and rollout.engine."
            f"tensor_parallel_size={config.rollout.engine.tensor_parallel_size} spreads one over several; set one of "
            "them to 1."
        )
    if not config.benchmark:
        raise SettingError("benchmark=[] evaluates nothing; choose some, such as benchmark=[aime24,math500].")


def check_group(algorithm: Algorithm, rollout: RolloutSettings) -> None:
    """A group-relative advantage needs a group."""
    advantage = inner(algorithm.advantage)
    if rollout.group_size == 1 and getattr(advantage, "group_relative", False):
        raise SettingError(
            f"rollout.group_size=1 leaves nothing to compare with, and algo.advantage={advantage.__name__} compares "
            "the rollouts of a group; set rollout.group_size to 2 or more."
        )
    selects = algorithm.within_group
    kept = _parameter(selects, "k") if selects is not None and is_marked(selects, keeps_k) else None
    if isinstance(selects, MoreOfHardPrompts):
        _check_sizes(selects.sizes, rollout.group_size)
        kept = min(selects.sizes)
    elif kept is not None and not 2 <= kept < rollout.group_size:
        raise SettingError(
            f"algo.within_group.k={kept} of rollout.group_size={rollout.group_size} responses leaves nothing to choose "
            f"or to compare; set it to 2 or more, and rollout.group_size to {max(kept, 2) + 1} or more."
        )
    if getattr(advantage, "compares_subsets", False):
        size = rollout.group_size if kept is None else kept
        check_subsets(advantage.__name__, _parameter(algorithm.advantage, "k"), size, kept is not None)


def _check_sizes(sizes: Sequence[int], group_size: int) -> None:
    if not (min(sizes) >= 2 and min(sizes) < group_size and max(sizes) <= group_size):
        raise SettingError(
            f"algo.within_group.sizes={list(sizes)} of rollout.group_size={group_size} responses leave nothing to "
            "choose or to compare; let them be 2 or more, none above rollout.group_size, and the smallest below it, or "
            "raise rollout.group_size."
        )


def check_subsets(advantage: str, k: int, size: int, within_group: bool) -> None:
    """A subset is smaller than the group."""
    if k < 1:
        raise SettingError(f"algo.advantage.k={k} is no number of responses; choose 1 or more.")
    if size <= k:
        setting = "algo.within_group.k" if within_group else "rollout.group_size"
        raise SettingError(
            f"{setting}={size} leaves no rollout beside the algo.advantage.k={k} of a subset, so that "
            f"algo.advantage={advantage} is 0 throughout; set {setting} to {k + 1} or more, or lower "
            "algo.advantage.k."
        )


def check_algorithm(algorithm: Algorithm) -> None:
    """Parts of an algorithm that contradict each other."""
    advantage, ratio = inner(algorithm.advantage), inner(algorithm.ratio)
    credit = type(algorithm.credit).__name__
    if algorithm.credit.token_level and is_marked(ratio, one_advantage):
        raise SettingError(
            f"algo.credit={credit} tells the tokens of a response apart, and algo.ratio={ratio.__name__} "
            "makes one clip decision a response; set algo/ratio=token or algo/ratio=sequence_token."
        )
    if is_marked(ratio, of_sequence) and is_marked(algorithm.clip, reads_log_prob):
        raise SettingError(
            f"algo.clip={inner(algorithm.clip).__name__} bounds the probabilities of tokens, and algo.ratio="
            f"{ratio.__name__} is that of whole sequences; set algo/ratio=token."
        )
    if algorithm.ratio_to == "engine" and not isinstance(algorithm.correction, NoCorrection):
        raise SettingError(
            f"algo.ratio_to=engine has the distance between engine and trainer in every ratio, and algo.correction="
            f"{type(algorithm.correction).__name__} would count it twice; set algo/correction=none."
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
    if algorithm.kl_in == "reward" and not algorithm.credit.token_level and getattr(advantage, "not_negative", False):
        raise SettingError(
            f"algo.kl_in=reward takes the KL off the reward, and algo.advantage={advantage.__name__} needs it to be 0 "
            "or above; set algo.kl_in=loss."
        )
    if algorithm.kl_in == "loss" and algorithm.kl_coef > 0 and inner(algorithm.kl) is k1:
        log.warning("algo/kl=k1 in the loss has an expected gradient of zero: it adds noise, see ngrpo.algo.kl")


def check_shaping(algorithm: Algorithm, terms: Sequence[WeightedTerm]) -> None:
    """Nothing may be added to a reward whose size says whether the answer is right."""
    advantage = inner(algorithm.advantage)
    if terms and getattr(advantage, "thresholded", False):
        raise SettingError(
            f"reward_terms={[term.name for term in terms]} changes the reward by whose size "
            f"algo.advantage={advantage.__name__} tells right from wrong; set reward_terms=[]."
        )


def check_rewards(algorithm: Algorithm, bounds: Bounds | None) -> None:
    """Rewards must be within float32, and not negative for some advantages; those that tell no bounds are trusted."""
    advantage = inner(algorithm.advantage)
    if bounds is not None and not all(map(math.isfinite, bounds)):
        raise SettingError(
            f"reward and reward_terms give from {bounds[0]:g} to {bounds[1]:g} in float32, and steps with infinite "
            "rewards are skipped; make reward.correct, reward.wrong or reward_terms.<name>.weight smaller."
        )
    if bounds is not None and bounds[0] < 0 and getattr(advantage, "not_negative", False):
        raise SettingError(
            f"reward and reward_terms give as little as {bounds[0]:g}, and algo.advantage={advantage.__name__} needs "
            "rewards of 0 or above; set reward=math, and reward_terms=[] or terms that take nothing off."
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


def check_scheduler(rollout: RolloutSettings, exploration: Exploration) -> None:
    """A scheduler must be one, and take rollouts of the strategy."""
    scheduler: Any = rollout.scheduler
    if not isinstance(scheduler, Scheduler):
        made = type(scheduler).__name__
        raise SettingError(
            f"rollout.scheduler makes a {made}; name a scheduler, such as those of conf/rollout/scheduler."
        )
    refusal = scheduler.refusal(exploration)
    if refusal is not None:
        raise SettingError(
            f"rollout.scheduler={type(scheduler).__name__} cannot branch rollouts of exploration="
            f"{type(exploration).__name__}: {refusal}; set rollout/scheduler=independent, or take another strategy."
        )
    try_scheduler(scheduler, exploration, rollout.group_size, rollout.max_new_tokens)


def check_ahead(
    rollout: RolloutSettings,
    engine: RolloutEngine,
    algorithm: Algorithm,
    selection: DynamicSampling,
    curriculum: Curriculum | None,
) -> None:
    """Making rollouts beside the update needs an engine beside it, and weights for rollouts of an older policy."""
    if rollout.ahead == 0:
        return
    if not engine.concurrent:
        raise SettingError(
            f"rollout.ahead={rollout.ahead} makes rollouts during the update, and rollout.engine="
            f"{type(engine).__name__} as configured takes turns with it; set rollout.engine.own_process=true."
        )
    if isinstance(algorithm.correction, NoCorrection) and algorithm.ratio_to == "trainer":
        raise SettingError(
            f"rollout.ahead={rollout.ahead} trains on rollouts of an older policy, and algo.correction=NoCorrection "
            "does not weigh them; set algo/correction=truncate."
        )
    if selection.max_refills:
        raise SettingError(
            f"rollout.ahead={rollout.ahead} prefetches a batch, and selection.max_refills="
            f"{selection.max_refills} draws further prompts for it; set selection.max_refills=0."
        )
    if isinstance(curriculum, SampledByPassRate):
        raise SettingError(
            f"rollout.ahead={rollout.ahead} draws prompts before the pass rates of the batch before are known, and "
            "data.curriculum=SampledByPassRate draws by them; set data/curriculum=every_problem."
        )


def check_tensor_parallel(source: ModelSource, trainer: TrainerConfig, processes: int) -> None:
    """The processes must fall into equal tensor groups, and the model into as many equal parts."""
    size = trainer.tensor_parallel_size
    setting = f"{SETTING}={size}"
    if size > 1 and processes % size and has_unknown_devices(trainer):
        raise SettingError(
            f"{setting} needs a multiple of so many processes, and trainer.devices=auto has no GPU here to count; set "
            f"trainer.devices={size // math.gcd(size, trainer.num_nodes)}, or how many there will be."
        )
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


def check_precision(source: ModelSource, update: UpdateSettings) -> None:
    """float16 is for computing: what is trained is kept in float32 beside it."""
    if source.dtype == "float16":
        raise SettingError(
            "model.dtype=float16 would keep what is trained in float16, which rounds most steps away and holds no "
            "moments of Adam; set model.dtype=float32 and trainer.precision=16-mixed, which computes in float16."
        )
    if update.mixed_in == torch.float16 and source.dtype != "float32":
        raise SettingError(
            f"trainer.precision={update.precision} computes in float16 beside float32 parameters, and model.dtype="
            f"{source.dtype} has already rounded them more; set model.dtype=float32."
        )


def check_lora(source: ModelSource, ranks: int) -> None:
    """FSDP shards the parameters of a layer together, and adapters are float32."""
    if ranks > 1 and source.lora is not None and source.dtype != "float32":
        raise SettingError(
            f"model.dtype={source.dtype} cannot be sharded with the float32 adapters of model.lora; set "
            "model.dtype=float32 (and trainer.precision=bf16-mixed)."
        )


def check_support(exploration: Exploration) -> None:
    """What a truncated distribution kept must be recorded, and more than one id."""
    if exploration.truncates and not exploration.support:
        raise SettingError(
            f"exploration={exploration} draws from a truncated distribution and does not record what it kept, on which "
            "the trainer would have to score the tokens; set exploration.largest_support=128, or keep it for "
            "callbacks.evaluation.evaluator.exploration."
        )
    if exploration.truncates and exploration.deterministic:
        raise SettingError(
            f"exploration={exploration} keeps one token, whose probability among those that are kept is 1 whatever the "
            "policy, so that nothing is learned; keep more tokens, or leave it to "
            "callbacks.evaluation.evaluator.exploration."
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


def check_optimizer(make: Callable[[Iterable[Any]], Optimizer], setting: str, node: DictConfig) -> None:
    """Optimisers check their settings when they get parameters; here they get one that is thrown away."""
    try:
        make([torch.nn.Parameter(torch.zeros(1))])
    except (ValueError, TypeError, AttributeError) as error:
        settings = ", ".join(f"{name!s}={value}" for name, value in node.items() if not str(name).startswith("_"))
        raise SettingError(f"{setting} with {settings} cannot be built ({first_line(error)}); change it.") from error


def check_schedule(factor: float) -> None:
    """The first factor must be one that a learning rate can be multiplied with."""
    if not 0.0 <= factor < float("inf"):
        raise SettingError(
            f"trainer.schedule multiplies the first learning rate by {factor}; choose warmup >= 0 and floor in [0, 1]."
        )


def check_clip(algorithm: Algorithm) -> None:
    """The numbers of the package's functions that an algorithm is made of; what a user's own mean only they know."""
    advantage = _known_keywords(algorithm.advantage)
    bounds = {"clip": _known_keywords(algorithm.clip), "ratio": _known_keywords(algorithm.ratio)}
    for part, settings in bounds.items():
        for name, value in settings.items():
            least = 1.0 if name == "dual" else 0.0
            if isinstance(value, int | float) and not value >= least:
                raise SettingError(f"algo.{part}.{name}={value} bounds nothing; choose {least:g} or more.")
            if name in _STEEPNESS and value == 0:
                raise SettingError(f"algo.{part}.{name}=0 divides by zero; choose a positive number.")
    if not advantage.get("eps", 1.0) > 0:
        raise SettingError(f"algo.advantage.eps={advantage['eps']} may divide by zero; choose a small positive number.")
    length = _known_keywords(algorithm.aggregate).get("length", 1)
    if not length >= 1:
        raise SettingError(
            f"algo.aggregate.length={length} divides the loss by no length; choose 1 or more, as "
            "rollout.max_new_tokens is."
        )


def _parameter(function: Any, name: str) -> Any:
    """Returns the value that a function of an algorithm gets for one of its parameters."""
    return keywords(function).get(name, signature(inner(function)).parameters[name].default)


def _known_keywords(function: Any) -> dict[str, Any]:
    return keywords(function) if below(inner(function).__module__, ("ngrpo",)) else {}
