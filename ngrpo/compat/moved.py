"""Where modules and names of version 0.1 are today."""

from collections.abc import Mapping

MODULES: Mapping[str, str] = {
    "ngrpo.annotations": "ngrpo.config.type_check",
    "ngrpo.arguments": "ngrpo.entrypoints.arguments",
    "ngrpo.author_code": "ngrpo.utils.author_code",
    "ngrpo.bad_steps": "ngrpo.training.skipped_steps",
    "ngrpo.batching": "ngrpo.training.batching",
    "ngrpo.checkpoints": "ngrpo.checkpoint.folders",
    "ngrpo.checks": "ngrpo.entrypoints.validation",
    "ngrpo.composed": "ngrpo.entrypoints.config_snapshot",
    "ngrpo.composition": "ngrpo.config.hydra_errors",
    "ngrpo.console": "ngrpo.entrypoints.console",
    "ngrpo.critic_update": "ngrpo.training.critic_update",
    "ngrpo.data.text": "ngrpo.data.sources.problem_text",
    "ngrpo.data.types": "ngrpo.types.problems",
    "ngrpo.demo.levels": "ngrpo.data.word_problems.levels",
    "ngrpo.demo.measuring": "ngrpo.demo_model.measuring",
    "ngrpo.demo.pretraining": "ngrpo.demo_model.pretraining",
    "ngrpo.demo.pretraining_text": "ngrpo.demo_model.pretraining_text",
    "ngrpo.demo.problems": "ngrpo.data.word_problems.problems",
    "ngrpo.demo.recipe": "ngrpo.demo_model.recipe",
    "ngrpo.demo.responses": "ngrpo.demo_model.responses",
    "ngrpo.demo.tokenizer": "ngrpo.demo_model.tokenizer",
    "ngrpo.demo.words": "ngrpo.data.word_problems.story_words",
    "ngrpo.door": "ngrpo.entrypoints.error_handling",
    "ngrpo.duration": "ngrpo.utils.duration",
    "ngrpo.earlier_settings": "ngrpo.config.earlier_settings",
    "ngrpo.environment": "ngrpo.config.environment",
    "ngrpo.evaluating": "ngrpo.entrypoints.evaluate",
    "ngrpo.evaluation.store": "ngrpo.evaluation.answer_store",
    "ngrpo.exploration.blank": "ngrpo.exploration.runtime.blank_record",
    "ngrpo.exploration.bound": "ngrpo.exploration.runtime.bound",
    "ngrpo.exploration.compiled": "ngrpo.exploration.runtime.compiled",
    "ngrpo.exploration.decide": "ngrpo.exploration.runtime.decide",
    "ngrpo.exploration.dry_run": "ngrpo.exploration.runtime.dry_run",
    "ngrpo.exploration.host_reads": "ngrpo.exploration.runtime.host_reads",
    "ngrpo.exploration.own_code": "ngrpo.exploration.runtime.own_code",
    "ngrpo.exploration.pilot": "ngrpo.report.analysis.pilot",
    "ngrpo.exploration.record": "ngrpo.types.records",
    "ngrpo.exploration.step_check": "ngrpo.exploration.runtime.step_check",
    "ngrpo.exploration.words": "ngrpo.report.analysis.single_token_words",
    "ngrpo.export_target": "ngrpo.checkpoint.export_target",
    "ngrpo.extras": "ngrpo.utils.optional_packages",
    "ngrpo.files": "ngrpo.utils.atomic_write",
    "ngrpo.gradients": "ngrpo.training.optim.grad_norm",
    "ngrpo.guard": "ngrpo.training.nonfinite_guard",
    "ngrpo.hub": "ngrpo.utils.hub",
    "ngrpo.hydra_main": "ngrpo.entrypoints.hydra_main",
    "ngrpo.input_checks": "ngrpo.entrypoints.input_validation",
    "ngrpo.input_files": "ngrpo.utils.input_files",
    "ngrpo.live": "ngrpo.report.status_line",
    "ngrpo.lock": "ngrpo.utils.lock",
    "ngrpo.logged": "ngrpo.loggers.history",
    "ngrpo.manifest": "ngrpo.checkpoint.manifest",
    "ngrpo.memory_budget": "ngrpo.training.memory_budget",
    "ngrpo.methods": "ngrpo.entrypoints.method_tables",
    "ngrpo.modeling.export": "ngrpo.checkpoint.export",
    "ngrpo.module": "ngrpo.training.module",
    "ngrpo.offload": "ngrpo.training.optim.offload",
    "ngrpo.optimizers": "ngrpo.training.optim.optimizers",
    "ngrpo.parent_watch": "ngrpo.distributed.parent_watch",
    "ngrpo.passes": "ngrpo.training.forward",
    "ngrpo.permissions": "ngrpo.config.permissions",
    "ngrpo.placement": "ngrpo.training.load_balancing",
    "ngrpo.provenance": "ngrpo.utils.provenance",
    "ngrpo.ranges": "ngrpo.config.ranges",
    "ngrpo.rank_watch": "ngrpo.entrypoints.rank_watch",
    "ngrpo.rendezvous": "ngrpo.distributed.rendezvous",
    "ngrpo.replaying": "ngrpo.entrypoints.replay_step",
    "ngrpo.report.pilot_figure": "ngrpo.report.analysis.pilot_figure",
    "ngrpo.report.store": "ngrpo.report.run_store",
    "ngrpo.resuming": "ngrpo.checkpoint.compatibility",
    "ngrpo.rewards.apart": "ngrpo.rewards.isolation.isolated",
    "ngrpo.rewards.apart_worker": "ngrpo.rewards.isolation.isolated_worker",
    "ngrpo.rewards.boxed": "ngrpo.rewards.answers.boxed",
    "ngrpo.rewards.count_bonus": "ngrpo.rewards.terms.count_bonus",
    "ngrpo.rewards.one_box": "ngrpo.rewards.terms.one_box",
    "ngrpo.rewards.overlong": "ngrpo.rewards.terms.overlong",
    "ngrpo.rewards.own": "ngrpo.rewards.isolation.custom",
    "ngrpo.rewards.pool": "ngrpo.rewards.isolation.pool",
    "ngrpo.rewards.repetition": "ngrpo.rewards.terms.repetition",
    "ngrpo.rewards.scoring": "ngrpo.rewards.terms.calls",
    "ngrpo.rewards.verdict": "ngrpo.types.scores",
    "ngrpo.rewards.worker": "ngrpo.rewards.isolation.judge",
    "ngrpo.rollout.ahead": "ngrpo.rollout.prefetch",
    "ngrpo.rollout.bystander": "ngrpo.rollout.null_engine",
    "ngrpo.rollout.experience": "ngrpo.types.experience",
    "ngrpo.rollout.kv_cache": "ngrpo.rollout.torch_engine.kv_cache",
    "ngrpo.rollout.plain": "ngrpo.rollout.serialization",
    "ngrpo.rollout.rows": "ngrpo.rollout.torch_engine.batch_state",
    "ngrpo.rollout.selection": "ngrpo.rollout.dynamic_sampling",
    "ngrpo.rollout.types": "ngrpo.types.rollouts",
    "ngrpo.rollout.vllm.buffers": "ngrpo.rollout.records.buffers",
    "ngrpo.rollout.vllm.core": "ngrpo.rollout.vllm.mixing_state",
    "ngrpo.rollout.vllm.extension": "ngrpo.rollout.vllm.worker_extension",
    "ngrpo.rollout.vllm.handover": "ngrpo.rollout.vllm.tensor_ipc",
    "ngrpo.rollout.vllm.host_memory": "ngrpo.rollout.records.host_memory",
    "ngrpo.rollout.vllm.lifeline": "ngrpo.rollout.vllm.process_watch",
    "ngrpo.rollout.vllm.session": "ngrpo.rollout.records.session",
    "ngrpo.rollout.vllm.split": "ngrpo.rollout.records.split",
    "ngrpo.rollout.vllm.stepper": "ngrpo.rollout.records.stepper",
    "ngrpo.rounding": "ngrpo.training.rounding",
    "ngrpo.samples": "ngrpo.training.samples",
    "ngrpo.saved_runs": "ngrpo.checkpoint.saved_runs",
    "ngrpo.schedule": "ngrpo.training.optim.lr_schedule",
    "ngrpo.shards": "ngrpo.checkpoint.shards",
    "ngrpo.step_metrics": "ngrpo.training.step_metrics",
    "ngrpo.streams": "ngrpo.utils.standard_streams",
    "ngrpo.study.begun": "ngrpo.study.fingerprint",
    "ngrpo.study.jobs": "ngrpo.study.scheduler",
    "ngrpo.study.levels": "ngrpo.study.difficulty",
    "ngrpo.study.paths": "ngrpo.evaluation.solution_paths",
    "ngrpo.study.store": "ngrpo.study.finished",
    "ngrpo.study.work": "ngrpo.study.stages",
    "ngrpo.targets": "ngrpo.config.allowlist",
    "ngrpo.text": "ngrpo.utils.sanitize",
    "ngrpo.torch_settings": "ngrpo.utils.torch_settings",
    "ngrpo.yaml_size": "ngrpo.config.yaml_limits",
}
"""Modules by their old names; everything that was in one is in the other, but for `NAMES`."""

PACKAGES: Mapping[str, str] = {
    "ngrpo.config": "ngrpo.config.instantiate",
    "ngrpo.distributed": "ngrpo.distributed.collectives",
    "ngrpo.loggers": "ngrpo.loggers.resumable",
    "ngrpo.rewards.terms": "ngrpo.rewards.terms.base",
    "ngrpo.rollout.torch_engine": "ngrpo.rollout.torch_engine.engine",
    "ngrpo.training": "ngrpo.entrypoints.train",
}
"""Modules that are packages of the same name today: where what could be imported from them is."""

NAMES: Mapping[str, str] = {
    "ngrpo.config.RolloutConfig": "ngrpo.config.schema.RolloutConfig",
    "ngrpo.config.RewardTermConfig": "ngrpo.config.schema.RewardTermConfig",
    "ngrpo.config.TrainerConfig": "ngrpo.config.schema.TrainerConfig",
    "ngrpo.config.Config": "ngrpo.config.schema.Config",
    "ngrpo.config.PromptConfig": "ngrpo.config.schema.PromptConfig",
    "ngrpo.config.EvaluateConfig": "ngrpo.config.schema.EvaluateConfig",
    "ngrpo.config.register": "ngrpo.config.schema.register",
    "ngrpo.rewards.math.Score": "ngrpo.types.scores.Score",
    "ngrpo.memory_budget.out_of_memory": "ngrpo.utils.out_of_memory.out_of_memory",
    "ngrpo.evaluation.identity.weights_digest": "ngrpo.modeling.digest.weights_digest",
    "ngrpo.demo.MODEL_PATH": "ngrpo.modeling.loading.MODEL_PATH",
}
"""Single names that are not where the rest of their module is."""

_CALLBACKS = "callbacks."


def current(name: str) -> str:
    """Returns what a dotted path of a module, class or function is called today; another path as it is."""
    if name in NAMES:
        return NAMES[name]
    if name.startswith(_CALLBACKS) and name.count(".") > 1:  # callbacks.module.Class, which was a package at the top
        return f"ngrpo.{name}"
    module, _, rest = name.rpartition(".")
    if name in MODULES:
        return MODULES[name]
    if module in MODULES:
        return f"{MODULES[module]}.{rest}"
    # A module of the package that is there now is not meant: those have no capital letters, and functions are checked
    # where they are used.
    if module in PACKAGES and rest[:1].isupper():
        return f"{PACKAGES[module]}.{rest}"
    return name
