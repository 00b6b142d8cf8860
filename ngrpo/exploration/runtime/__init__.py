"""The machinery that runs a strategy: binding, checks, the decode step, compilation.

- ``bound.py``: A strategy bound to a model: with its tables, end tokens and learned parameters
- ``compiled.py``: The functions of a strategy, compiled by torch.compile
- ``decide.py``: The decode step of a strategy, the same tensor function in every engine
- ``distributions.py``: Entropies and likeliest tokens of a decode step, the same tensor function in every engine
- ``dry_run.py``: The dry run of a strategy when it is bound: a few steps of two rows, in which it must do what its
  class declares
- ``empty_record.py``: An empty record of a strategy, and empty supports, to be filled
- ``global_draws.py``: The guard against random numbers of Python's, NumPy's or PyTorch's global generator
- ``gradient_check.py``: The check of a strategy's gradients: the trainer's backward pass through its own scores and
  inputs, tried once
- ``host_reads.py``: The guard against code that reads values of tensors back to the host
- ``kept_state.py``: The guard against state that a strategy keeps on its object or its class
- ``step_check.py``: The checks of a strategy's step against what its class declares, and what engines and trainer can
  use
- ``strategy_errors.py``: Errors of a strategy's own code, as opposed to faults of the engine that runs it
"""
