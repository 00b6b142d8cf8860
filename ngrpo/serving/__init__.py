"""The server of rollouts: OpenAI's interface with exploration, and one of this project with records and weights.

`ngrpo.remote` is the client. A request names a strategy and its numbers; nothing in it runs code. Rollouts that are
made together have the same strategy and settings, and each response is of one set of weights.

- ``access.py``: The doorkeeper of a server: who may ask, and from where
- ``answers.py``: Answers of a server: JSON, and errors in the form of OpenAI's
- ``app.py``: The application of a server: its routes behind the token, with health and metrics
- ``asked.py``: The request as it was asked, checked: strategies, prompts, sampling
- ``bodies.py``: The bodies of requests: read within limits of size and time
- ``catalogue.py``: The strategies that requests may name, built from a name and numbers: no code, no text comes from a
  request
- ``engine_streams.py``: The streams in which an engine makes what many clients ask for, and its weights' changes
  between them
- ``fields.py``: The fields of a JSON object, each read with its type and range, and none left over
- ``generation.py``: The work of an engine: rollouts that a request asks for, and what decides them
- ``handling.py``: The common part of the handlers: rollouts made for a request, and counted
- ``metrics.py``: Prometheus metrics of a server
- ``native_routes.py``: The interface of this project: rollouts with records, weights, and the tensors that clients send
- ``openai_routes.py``: The part of OpenAI's interface that rollouts have: completions, chat completions and the list of
  models
- ``refusals.py``: Refusals of requests: a status of HTTP with one sentence
- ``served_model.py``: The model that is served: an engine, its weights, and the strategies that are bound to them
- ``settings.py``: The settings of a server: where it listens, who may ask, and how much at once
- ``tensor_store.py``: The store of tensors that clients send: each part by its SHA-256, the least recently used ones
  dropped
"""
