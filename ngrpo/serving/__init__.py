"""The server of rollouts: OpenAI's interface with exploration, and one of this project with records and weights.

`ngrpo.remote` is the client. A request names a strategy and its numbers; nothing in it runs code. Rollouts that are
made together have the same strategy and settings, and each response is of one set of weights.

- ``access.py``: The doorkeeper of a server: who may ask, and from where
- ``answers.py``: Answers of a server: JSON, and errors in the form of OpenAI's
- ``app.py``: The application of a server: its routes behind the token, with health and metrics
- ``asked.py``: The request as it was asked, checked: strategies, prompts, sampling
- ``bodies.py``: The bodies of requests: read within limits of size and time
- ``catalogue.py``: The strategies that requests may name, built from a name and numbers: no code, no text comes from
  a request
- ``engine_streams.py``: The streams in which an engine makes what many clients ask for, and its weights' changes
  between them
- ``event_stream.py``: Answers that are sent while they are made: server-sent events, to clients that may hang up or
  read slowly
- ``fields.py``: The fields of a JSON object, each read with its type and range, and none left over
- ``following.py``: The news of rollouts on their way from the engine's thread to a coroutine
- ``generation.py``: The work of an engine: rollouts that a request asks for, and what decides them
- ``growing_text.py``: The text of a response that grows: what no further token can change, up to a text that stops it
- ``handling.py``: The common part of the handlers: rollouts made for a request, and counted
- ``metrics.py``: Prometheus metrics of a server
- ``native_routes.py``: The interface of this project: rollouts with records, weights, and the tensors that clients
  send
- ``openai_answers.py``: The answers of OpenAI's interface: whole, and in chunks
- ``openai_request.py``: The request of OpenAI's interface, read: what rollouts can do, and a refusal of what they
  cannot
- ``openai_routes.py``: The part of OpenAI's interface that rollouts have: completions, chat completions and the list
  of models
- ``refusals.py``: Refusals of requests: a status of HTTP with one sentence
- ``response_texts.py``: The texts of a request's responses: whole, or as they come, up to a stop text
- ``served_model.py``: The model that is served: an engine, its weights, and the strategies that are bound to them
- ``settings.py``: The settings of a server: where it listens, who may ask, and how much at once
- ``tensor_store.py``: The store of tensors that clients send: each part by its SHA-256, the least recently used ones
  dropped
- ``web_protocol.py``: The web server's side of a connection: it hangs up on clients that do not finish what they
  began
"""
