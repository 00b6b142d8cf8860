"""One optimiser step: from scored rollouts to updated weights.

- ``batching.py``: Cutting a rank's sequences into minibatches (optimiser steps) and microbatches (forward passes)
- ``critic_update.py``: The critic's part in a training step
- ``forward.py``: Forward passes over rollouts, the same for policy, reference and critic
- ``load_balancing.py``: Which rank trains on which sequences: as many on each, and as much work
- ``memory_budget.py``: A microbatch budget that gives way when memory runs out
- ``metric_logging.py``: Statistics over the rollouts of all ranks
- ``module.py``: The LightningModule: policy and reference, and one rollout batch's optimiser steps
- ``nonfinite_guard.py``: Which optimiser steps are made: those with finite numbers
- ``optim/``: Optimisers, learning rates, gradient norms and offloading
- ``rounding.py``: Whether optimiser steps reach the parameters: a small step on a bfloat16 weight is rounded away
- ``samples.py``: Between rollouts and loss: what is known of each response, packed and unpacked
- ``skipped_steps.py``: Optimiser steps that were not finite, as files that can be looked at again
- ``step_metrics.py``: Metrics of one optimiser step: sums over microbatches, reduced over ranks, divided once at the
  end
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
