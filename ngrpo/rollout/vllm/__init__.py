"""Rollouts in vLLM: the engine, and the plugin that mixes embeddings inside vLLM's compiled forward.

`engine` is what the trainer uses. Everything that touches vLLM's private interfaces lives in `runner_v1`, `runner_v2`,
`embedding` and `prefix_cache`; `versions` refuses a vLLM that they were not tested with.
"""
