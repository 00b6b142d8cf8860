"""Models: loading, packing, attention, replay, sharding.

Loading, and what is checked before:

- ``loading.py``: Loading a policy and its tokenizer from a Hugging Face folder or hub name
- ``folder.py``: The checks of a model's folder for damage, before and after its weights are read
- ``config_values.py``: The checks of values in a model's config.json from which no sensible model can be built
- ``supported_models.py``: The supported model types: those whose log-probs were compared with their own forward, one by
  one
- ``rope.py``: The supported rotary positions: those whose frequencies depend on the position alone
- ``embedding_scale.py``: Embeddings that scale their rows, as Gemma 3's does, and strategies that take the rows as they
  lie in the table
- ``digest.py``: A digest of a model's weights, by which checkpoints, stored answers and comparisons know it

The model that scores:

- ``policy.py``: The policy: a causal language model that scores recorded rollouts
- ``critic.py``: The critic: the policy's architecture with a value in place of the vocabulary
- ``head.py``: The map from the product of a causal LM's head to its logits: a scale and, in some models, a soft cap
- ``fused_scores.py``: Log-probs and entropies from hidden states and the head, a chunk of rows at a time: never [rows,
  vocabulary]
- ``exact/``: Exact computation: a token's numbers depend on its sequence and the weights alone, bit for bit
- ``replay.py``: The input embeddings that a rollout saw, rebuilt from tokens and record
- ``learned.py``: An exploration strategy's learned parameters as a file beside the model

Packing and attention:

- ``model_in_memory.py``: A causal language model that is in memory already, as the source of a policy
- ``packing.py``: Rollouts packed into one row without padding, with all that replaying and scoring them needs
- ``shared_prompts.py``: Prompts that several sequences of a packed batch have in common, computed once
- ``attention.py``: One attention function for all passes, registered with transformers as ``ngrpo``
- ``varlen.py``: Causal attention inside each of several packed sequences: one kernel on a GPU, one call a sequence
  elsewhere
- ``cudnn_attention.py``: Causal attention inside packed sequences by cuDNN: on Hopper GPUs, where its Python frontend
  is installed
- ``cost.py``: The cost of a sequence in one forward pass
- ``transfer.py``: The copy of tensors to the device, without waiting for it

Sharding, precision and memory:

- ``sharding.py``: FSDP2 for the scoring models, and whole tensors out of sharded parameters
- ``gathering.py``: FSDP2 with one gathering of weights and one sum of gradients for several passes, in place of one for
  each
- ``tensor_parallel.py``: Decoder layers whose matrix products are split over the ranks of a tensor-parallel group
- ``layers.py``: Decoder layers made cheaper: compiled, and with activations recomputed in the backward pass
- ``precision.py``: Computation in another dtype over parameters that stay in their own
- ``gradients.py``: Sums of gradients over microbatches and chunks: float32 totals of what is computed in bfloat16
- ``compiled.py``: Functions that run compiled on a GPU: what they read and write there goes through memory once
- ``overflow.py``: Numbers beyond the range of float16: weights that it cannot hold, and the module whose output
  overflows

Adapters:

- ``lora.py``: Low-rank adapters by peft: trained beside frozen weights, and transferred merged
"""
