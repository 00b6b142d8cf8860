"""The client of rollout servers: exploration without this project's engines, on other machines.

It needs torch and safetensors, and neither vLLM, Lightning, Hydra nor transformers. What travels is JSON with tensors
in base64, and safetensors for weights: numbers, which run no code when they are read. `ngrpo.serving` is the other
side.

- ``connection.py``: The connection to one rollout server: requests, answers, and the errors that they come to
- ``explorer.py``: Rollouts from servers: prompts in, tokens, log-probs and records out
- ``messages.py``: Requests and rollouts as JSON, with tensors in base64
- ``server_group.py``: Several rollout servers of one model: work is split among them, and goes elsewhere when one fails
- ``tensor_parts.py``: Tensors on their way to a server: cut into parts of safetensors, each known by its SHA-256
"""
