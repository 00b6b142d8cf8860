"""Rollout engines and their records.

- ``auto.py``: The best engine that can run here
- ``dynamic_sampling.py``: Dynamic sampling: groups without a training signal are dropped, and replaced by groups of
  further prompts
- ``engine.py``: What every rollout engine offers
- ``null_engine.py``: The stand-in for an engine on ranks that get their rollouts from another
- ``prefetch.py``: The next batch's rollouts, made in a thread while the present batch trains
- ``records/``: Records of a rollout as an engine makes them, whatever the engine
- ``recovery.py``: Recovery from faults of an engine: it is rebuilt once, and all ranks learn of it
- ``serialization.py``: Rollouts and experiences as primitives and tensors, which files may hold without running code
  when they are read
- ``torch_engine/``: The rollout engine in plain PyTorch
- ``vllm/``: Rollouts in vLLM: the engine, and the plugin that mixes embeddings inside vLLM's compiled forward
- ``worker.py``: From prompts to scored rollouts: the engine, the strategy, the reward and the tokenizer of one rank
"""
