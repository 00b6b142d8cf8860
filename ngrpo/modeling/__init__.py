"""Models: loading, packing, attention, replay, sharding, export.

- ``attention.py``: One attention function for all passes, registered with transformers as ``ngrpo``
- ``config_values.py``: Values in a model's config.json that no model can be built from, or only a senseless one
- ``cost.py``: What a sequence costs in one forward pass
- ``critic.py``: The critic: the policy's architecture with a value in place of the vocabulary
- ``digest.py``: A digest of a model's weights, by which checkpoints, stored answers and comparisons know it
- ``embedding_scale.py``: Embeddings that scale their rows, as Gemma 3's does, and strategies that take the rows as they
  lie in the table
- ``folder.py``: A model's folder: what is damaged, said in one sentence, before and after its weights are read
- ``fused_scores.py``: Log-probs and entropies from hidden states and the head, a chunk of rows at a time: never [rows,
  vocabulary]
- ``gathering.py``: FSDP2 that gathers weights and sums gradients once for several passes, in place of once for each
- ``head.py``: What a causal LM does with the product of its head: logits are scaled, and some models bound them
- ``kinds.py``: Which model types are supported: those whose log-probs were compared with their own forward, one by one
- ``layers.py``: Decoder layers made cheaper: compiled, and with activations made again in the backward pass
- ``learned.py``: An exploration strategy's learned parameters as a file beside the model
- ``loading.py``: Loading a policy and its tokenizer from a Hugging Face folder or hub name
- ``lora.py``: Low-rank adapters by peft: trained beside frozen weights, and transferred merged
- ``packing.py``: Rollouts packed into one row without padding, with what is needed to replay and score them
- ``policy.py``: The policy: a causal language model that scores recorded rollouts
- ``precision.py``: bfloat16 computation over parameters that stay in their own dtype
- ``replay.py``: The input embeddings that a rollout saw, rebuilt from tokens and record
- ``rope.py``: Which rotary positions are supported: those whose frequencies depend on the position alone
- ``sharding.py``: FSDP2 for the scoring models, and whole tensors out of sharded parameters
- ``tensor_parallel.py``: Decoder layers whose matrix products are shared out over the ranks of a tensor-parallel group
- ``transfer.py``: Tensors on their way to the device, without waiting for it
- ``varlen.py``: Causal attention inside each of several packed sequences: one kernel on a GPU, one call a sequence
  elsewhere
"""
