"""One optimiser step: from scored rollouts to updated weights.

- ``batching.py``: Partition of a rank's sequences into minibatches (optimiser steps) and microbatches (forward
  passes)
- ``critic_update.py``: The critic's part in a training step; its twin is ``policy_update.py``
- ``forward.py``: Forward passes over rollouts in microbatches, the same for policy, reference and critic
- ``learned_gradients.py``: The warning of learned parameters of a strategy that get no gradient
- ``load_balancing.py``: Load balancing: as many sequences on every rank, and nearly as much work
- ``memory_budget.py``: The budget of tokens in a microbatch, which is lowered when memory runs out
- ``metric_logging.py``: Logging of statistics over the rollouts of all ranks
- ``models.py``: Policy, reference and critic: loaded, adapted and sharded
- ``module.py``: The LightningModule of a run: Lightning's hooks
- ``nonfinite_guard.py``: The guard that skips optimiser steps with numbers that are not finite
- ``observed_advantages.py``: The advantages of an iteration, held to what an optimiser can use
- ``observed_rewards.py``: The rewards of an iteration, held to what the advantage can use
- ``optim/``: Optimisers and their parameter groups, learning rates, gradient norms, the loss scale and offloading
- ``policy_update.py``: The policy's part in a training step; its twin is ``critic_update.py``
- ``rounding.py``: The fraction of parameters that an optimiser step changes: on bfloat16 weights small steps are
  rounded away
- ``run_length.py``: The length of a run: in iterations and, with a limit, in generated tokens
- ``sample_preparation.py``: Preparation of the samples that each rank trains on: balanced over the ranks, scored,
  with advantages
- ``samples.py``: Samples, one for each response to learn from, and the tensors that are packed from them
- ``scoring.py``: Forward passes that score a rollout batch before its optimiser steps: old policy, reference, critic
- ``skipped_steps.py``: Files of the optimiser steps that were skipped for numbers that are not finite, to look at
  them again
- ``step_metrics.py``: Metrics of one optimiser step: sums over microbatches, reduced over ranks, divided once at the
  end
- ``token_weights.py``: Token weights of an optimiser batch, made before its first microbatch
- ``update_settings.py``: Settings of the optimiser steps (``trainer`` in the configuration)
- ``weight_export.py``: The policy's weights as whole tensors, for the rollout engine and for an exported model
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
