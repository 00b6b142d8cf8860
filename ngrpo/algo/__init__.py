"""Algorithms as compositions of pure functions.

- ``adaptive_entropy.py``: The entropy bonus whose coefficient follows the entropy
- ``advantage.py``: Advantages from the rewards of the G responses to each prompt
- ``aggregate.py``: Aggregation of per-token losses to one number, as a weight for every token
- ``best.py``: The largest reward that can be had, for advantages that compare rewards with it
- ``clip.py``: The clipped surrogate, per token, as a loss to minimise
- ``consistency.py``: Consistency-aware credit (COPO)
- ``correction.py``: Rollout correction: importance weights for the distance of the engine's log-probs from the
  trainer's
- ``credit.py``: Credit assignment: from one advantage a response to advantages for its tokens
- ``first_token.py``: Credit for the first token of one right response a group (Latent-GRPO)
- ``groups.py``: Groups: the responses to one prompt, identified by the prompt's key and never by their position in
  the batch
- ``kl.py``: Per-token estimators of the KL divergence to the reference, from log-probs of the sampled tokens
- ``learned_state.py``: The state of a part of an algorithm: what it has learned from the run so far
- ``loss_terms.py``: Inputs and outputs of the loss of a microbatch
- ``marks.py``: Marks on the functions of an algorithm: what one of them needs beside its usual arguments, and what it
  excludes
- ``moments.py``: Mean and variance over the whole rollout batch, on all ranks
- ``order_statistics.py``: Order statistics over all ranks: the k-th smallest of values, and quantiles
- ``outcome_bonus.py``: Outcome bonuses: exploration by final answer, added to the advantages
- ``policy_loss.py``: An algorithm as a composition of functions, and the loss that they make together
- ``quantile_sketch.py``: A sketch of a distribution of numbers that come one after the other, from which its quantiles
  are read
- ``ratio.py``: Importance ratio of the current policy to the one before this rollout batch, by token or by sequence
- ``segments.py``: Reductions over packed sequences: per-token tensors are flat [N], ``lengths`` [S] sums to N
- ``subsets.py``: Advantages from the subsets of k responses of a group: Pass@k, and its likeness for graded rewards,
  max@k
- ``token_weight.py``: Token weights: which tokens the surrogate learns from, and how much from each
- ``tree_credit.py``: Credit by tree (TreePO): a response is compared with its like in every subtree that it is in
- ``truncation.py``: Responses that were cut off at the length limit: excluded (DAPO's overlong filtering), or without
  an advantage
- ``value_loss.py``: The critic's loss, per token
- ``within_group.py``: Selection inside a group: which of the responses to a prompt are learned from, by something else
  than the reward
"""
