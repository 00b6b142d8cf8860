"""What runs a strategy: binding, checks, the decode step, compilation.

- ``blank_record.py``: Room for the records of a strategy
- ``bound.py``: A strategy together with what it was prepared with
- ``compiled.py``: Functions of a strategy through torch.compile
- ``decide.py``: The step that every engine makes, the same tensor function in all of them
- ``dry_run.py``: A few steps of two rows when a strategy is bound: what its class declares must be what it does
- ``host_reads.py``: Finds code that reads the values of tensors back to the host
- ``own_code.py``: Tells an exception of a strategy's own code from a fault of the engine that runs it
- ``step_check.py``: What a strategy returned, held against what its class declares and what engines and trainer can
  use
"""
