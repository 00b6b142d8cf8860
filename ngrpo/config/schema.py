"""The typed configuration: every setting of conf/train.yaml, evaluate.yaml, sample.yaml and serve.yaml, explained."""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from ngrpo.config import config_dir, demo_default, engine_dtype, environment, run_name


@dataclass
class RolloutConfig:
    """``rollout``: see `ngrpo.rollout.settings.RolloutSettings`; ``engine`` and ``scheduler`` are `_target_` nodes."""

    engine: Any = MISSING
    scheduler: Any = MISSING
    group_size: int = MISSING
    max_new_tokens: int = MISSING
    temperature: float = MISSING
    ahead: int = 0
    exact: bool = False


@dataclass
class RewardTermConfig:
    """``reward_terms.<name>``: see `ngrpo.rewards.terms.base.WeightedTerm`.

    Attributes:
        term: builds a function of `ngrpo.rewards.terms.base.Responses`.
        weight: factor on its values.
    """

    term: Any = MISSING
    weight: float = 1.0


@dataclass
class TrainerConfig:
    """``trainer``: see `ngrpo.entrypoints.trainer.make_trainer` and `ngrpo.training.update_settings.UpdateSettings`.

    Attributes:
        iterations: rollout batches to train on, those before a resume included.
        accelerator: cpu | gpu | auto (Lightning's).
        devices: processes on this machine, or "auto".
        num_nodes: machines.
        tensor_parallel_size: processes that hold one model between them; see `ngrpo.distributed.collectives.Ranks`.
        precision: 32-true | bf16-mixed | 16-mixed.
        threads: CPU threads of PyTorch in each process; null leaves it to PyTorch.
        matmul_precision: highest | high | medium, of float32 matrix products; see `ngrpo.utils.torch_settings`.
        microbatch_tokens: most tokens (prompts included) in one forward pass.
        head_rows: most tokens whose logits over the vocabulary are held at a time.
        max_grad_norm: gradient norms above are scaled down to it.
        max_bad_steps: optimiser steps in a row without a finite loss and gradient after which the run stops.
        max_time: span after which this process finishes its iteration, saves and stops: "45m", "11h30m"; null for none.
        max_generated_tokens: response tokens of all training rollouts after which the run is over, if it has not made
            its ``iterations`` before; null for no limit.
        offload_reference: keep the reference in host memory outside its passes.
        offload_optimizer: keep the optimiser's moments in host memory while rollouts are made.
        gather_once: with several devices, gather weights and sum gradients once an optimiser step; null where that
            takes a small part of a GPU's memory.
        share_prompts: compute a prompt once for those of its responses that are in one forward pass of the update.
        plan_memory: say the planned peak at the start on a GPU, and refuse what certainly cannot fit.
        optimizer: a partial `_target_` node, called with the parameters.
        schedule: a partial `_target_` node, called with the optimiser steps made and those of the whole run; see
            `ngrpo.training.optim.lr_schedule`.
    """

    iterations: int = MISSING
    accelerator: str = MISSING
    devices: Any = MISSING
    num_nodes: int = MISSING
    tensor_parallel_size: int = 1
    precision: str = MISSING
    threads: int | None = None
    matmul_precision: str = "highest"
    microbatch_tokens: int = MISSING
    head_rows: int = MISSING
    max_grad_norm: float = MISSING
    offload_reference: bool = False
    offload_optimizer: bool = False
    gather_once: bool | None = None
    share_prompts: bool = True
    max_bad_steps: int = MISSING
    max_time: str | None = None
    max_generated_tokens: int | None = None
    plan_memory: bool = True
    optimizer: Any = MISSING
    schedule: Any = MISSING


@dataclass
class Config:
    """The root. ``Any`` fields are `_target_` nodes, checked against the signature of what they name.

    Attributes:
        model: builds a `ngrpo.modeling.loading.ModelSource`.
        data: builds a `ngrpo.data.datamodule.PromptDataModule`.
        benchmark: builds `ngrpo.evaluation.benchmark.Benchmark` by name; evaluated in place of the data's own problems.
        reward: builds a `ngrpo.rewards.protocol.Reward`.
        reward_terms: what is added to it in training, by name.
        selection: builds a `ngrpo.rollout.dynamic_sampling.DynamicSampling`.
        algo: builds an `ngrpo.algo.policy_loss.Algorithm`.
        critic: builds a `ngrpo.training.critic_update.CriticSettings`; null trains none.
        exploration: builds an `ngrpo.exploration.base.Exploration`.
        rollout: rollouts and their engine.
        trainer: hardware, optimiser, number of iterations.
        logger: builds Lightning loggers by name; null leaves one out.
        callbacks: Lightning callbacks by name; null leaves one out.
        seed: of everything random.
        ckpt: null, "latest", or a run's or checkpoint's folder to resume from.
        allow_targets: modules beside `ngrpo.config.allowlist.ALLOWED` that `_target_` may name; those named on the
            command line are added.
        custom_reward_timeout_s: seconds that a call of a reward, or of a reward term, from outside the package may
            take; it runs in a process of its own. Null runs it in the trainer's, without a limit.
    """

    model: Any = MISSING
    data: Any = MISSING
    benchmark: dict[str, Any] = field(default_factory=dict)
    reward: Any = MISSING
    reward_terms: dict[str, RewardTermConfig] = field(default_factory=dict)
    selection: Any = MISSING
    algo: Any = MISSING
    critic: Any = None
    exploration: Any = MISSING
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    logger: dict[str, Any] = field(default_factory=dict)
    callbacks: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    ckpt: str | None = None
    allow_targets: list[str] = field(default_factory=list)
    custom_reward_timeout_s: float | None = None


@dataclass
class PromptConfig:
    """``data`` of an evaluation, or of samples: how its prompts are made.

    Attributes:
        max_prompt_tokens: longer prompts are left out.
        system_prompt: system message; null for none.
        template_args: variables of the chat template; see `ngrpo.data.chat_template.ChatFormat`.
        template_date: the day, as 2026-01-31, for templates that ask for the date; null for that of the first call.
        plain_prompts: the bare question is a prompt where the tokenizer has no chat template.
    """

    max_prompt_tokens: int = MISSING
    system_prompt: str | None = None
    template_args: dict[str, Any] = field(default_factory=dict)
    template_date: str | None = None
    plain_prompts: bool = False


@dataclass
class EvaluateConfig:
    """The root of ``conf/evaluate.yaml``.

    Attributes:
        model: builds a `ngrpo.modeling.loading.ModelSource`.
        benchmark: builds `ngrpo.evaluation.benchmark.Benchmark` by name.
        data: how prompts are made.
        reward: builds a `ngrpo.rewards.protocol.Reward`.
        rollout: the engine and ``max_new_tokens``; the rest is for training.
        evaluator: builds an `ngrpo.evaluation.evaluator.Evaluator`.
        n: samples a problem.
        k: of Pass@k and maj@k; null for the powers of two up to n.
        problems_at_once: problems sampled together, and stored together.
        accelerator: cpu | gpu | auto.
        devices: replicas of the model on this machine, one a device, each of which answers a share of the problems;
            "auto" for every GPU.
        threads: CPU threads of PyTorch; null leaves it to PyTorch.
        matmul_precision: highest | high | medium; see `ngrpo.utils.torch_settings`.
        seed: of the samples.
        out: folder of answers and figures.
        custom_reward_timeout_s: seconds that a call of a reward from outside the package may take, in a process of its
            own; longer ends the evaluation. Null runs it in this one, without a limit.
        allow_targets: see `Config`.
    """

    model: Any = MISSING
    benchmark: dict[str, Any] = field(default_factory=dict)
    data: PromptConfig = field(default_factory=PromptConfig)
    reward: Any = MISSING
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    evaluator: Any = MISSING
    n: int = MISSING
    k: list[int] | None = None
    problems_at_once: int = MISSING
    accelerator: str = "auto"
    devices: Any = 1
    threads: int | None = None
    matmul_precision: str = "highest"
    seed: int = 0
    out: str = MISSING
    allow_targets: list[str] = field(default_factory=list)
    custom_reward_timeout_s: float | None = None


@dataclass
class SampleConfig:
    """The root of ``conf/sample.yaml``.

    Attributes:
        model: builds a `ngrpo.modeling.loading.ModelSource`.
        exploration: builds an `ngrpo.exploration.base.Exploration`.
        rollout: the engine, ``max_new_tokens`` and ``temperature``; the rest is for training.
        data: how prompts are made.
        n: responses to each prompt.
        accelerator: cpu | gpu | auto.
        threads: CPU threads of PyTorch; null leaves it to PyTorch.
        matmul_precision: highest | high | medium; see `ngrpo.utils.torch_settings`.
        seed: of the samples.
        allow_targets: see `Config`.
    """

    model: Any = MISSING
    exploration: Any = MISSING
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    data: PromptConfig = field(default_factory=PromptConfig)
    n: int = MISSING
    accelerator: str = "auto"
    threads: int | None = None
    matmul_precision: str = "highest"
    seed: int = 0
    allow_targets: list[str] = field(default_factory=list)


@dataclass
class ServerConfig:
    """``server``: see `ngrpo.serving.settings.ServerSettings`.

    Attributes:
        host: address that is listened on; other machines reach it with a token only.
        port: 0 takes a free one.
        token_variable: environment variable with the bearer token that every request must show.
        max_body_mib: of a request's body, but for weights.
        max_part_mib: of a part of tensors that is sent, such as weights.
        max_tensors_gib: of all tensors that are kept for clients; null for twice the weights and 1 GiB.
        max_requests: rollouts in one request.
        max_waiting: rollouts that are asked for and not made; what comes then is refused.
        max_width: ids in a mixture that a request may ask for.
        body_timeout_s: longest wait for a whole body.
        send_timeout_s: longest wait until a client takes a part of its answer.
    """

    host: str = MISSING
    port: int = MISSING
    token_variable: str = MISSING
    max_body_mib: float = MISSING
    max_part_mib: float = MISSING
    max_tensors_gib: float | None = None
    max_requests: int = MISSING
    max_waiting: int = MISSING
    max_width: int = MISSING
    body_timeout_s: float = MISSING
    send_timeout_s: float = MISSING


@dataclass
class ServeConfig:
    """The root of ``conf/serve.yaml``.

    Attributes:
        model: builds a `ngrpo.modeling.loading.ModelSource`.
        exploration: builds an `ngrpo.exploration.base.Exploration`, for requests that name none.
        rollout: the engine, the most ``max_new_tokens`` of a request and its ``temperature``; the rest is for training.
        data: how prompts are made.
        server: where it listens, who may ask, and how much at once.
        accelerator: cpu | gpu | auto.
        threads: CPU threads of PyTorch; null leaves it to PyTorch.
        matmul_precision: highest | high | medium; see `ngrpo.utils.torch_settings`.
        allow_targets: see `Config`.
    """

    model: Any = MISSING
    exploration: Any = MISSING
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    data: PromptConfig = field(default_factory=PromptConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    accelerator: str = "auto"
    threads: int | None = None
    matmul_precision: str = "highest"
    allow_targets: list[str] = field(default_factory=list)


def register() -> None:
    """Makes the schemas known to Hydra, and the resolvers: defaults by model and trainer, environment, --config-dir."""
    environment.register()
    config_dir.register()
    demo_default.register()
    engine_dtype.register()
    run_name.register()
    store = ConfigStore.instance()
    store.store(group="schema", name="train", node=Config, package="_global_")
    store.store(group="schema", name="evaluate", node=EvaluateConfig, package="_global_")
    store.store(group="schema", name="sample", node=SampleConfig, package="_global_")
    store.store(group="schema", name="serve", node=ServeConfig, package="_global_")
