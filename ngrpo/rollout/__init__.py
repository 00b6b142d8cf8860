"""Rollouts: engines that generate, and the worker that makes scored rollouts of prompts.

`worker` is the entry: it asks an `engine` for rollouts and scores them. `dynamic_sampling`, `prefetch` and `recovery`
are the parts of the loop in `ngrpo.callbacks.rollout`. An engine is any object with the methods in `engine`.

- ``admission.py``: The order in which an engine starts requests: those of one prompt next to each other, the longest
  first
- ``auto.py``: The best engine for a run: vLLM on a GPU where it can serve the run, else the torch engine
- ``continuous_refill.py``: Dynamic sampling without rounds: what replaces a dropped group starts as soon as it is known
  to be needed
- ``dynamic_sampling.py``: Dynamic sampling: groups without a training signal are dropped, and replaced by groups of
  further prompts
- ``engine.py``: The protocol of rollout engines
- ``graded_scores.py``: The warning of rewards that count alike as right answers although they are far apart
- ``nonfinite_scores.py``: The warning of responses whose log-probs are not finite: the engine's numbers overflowed, and
  so chose no token
- ``null_engine.py``: The stand-in for an engine on ranks that get their rollouts from another
- ``prefetch.py``: The next batch's rollouts, made in a thread while the present batch trains
- ``records/``: Records of mixed decoding on the device, for an engine that decodes in processes and graphs of its own
- ``recovery.py``: Recovery from faults of an engine: it is rebuilt once, and all ranks learn of it
- ``remote_engine.py``: The engine on other machines: rollouts come from servers (``ngrpo serve``), and weights go to
  them
- ``request_limits.py``: Refusals of requests that an engine cannot serve as they are
- ``response_decoding.py``: Texts of responses: as they are, as a reward gets them, and without the token that ended
  them
- ``returned_rollouts.py``: Refusals of rollouts that lack what was asked of their engine; one of a user's own may not
  give all
- ``scheduling/``: Schedulers: which requests make the responses to a prompt, from independent samples to trees
- ``served_dtype.py``: The dtype that an engine serves a model in: ``rollout.engine.dtype``
- ``served_engine.py``: An engine that serves the policy: its start, the weights and tables that it gets, its sleep, and
  its rebuilding
- ``settings.py``: Settings of rollouts
- ``torch_engine/``: The rollout engine in plain PyTorch: continuous batching over a preallocated key/value cache
- ``vllm/``: Rollouts in vLLM: the engine, and the plugin that mixes embeddings inside vLLM's compiled forward
- ``worker.py``: The rollout worker of a rank, which makes scored rollouts of prompts with its engine, strategy and
  reward
"""
