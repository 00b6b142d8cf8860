"""Plans of a run's memory and time, before anything is loaded.

The passes of an update are made on the meta device, where tensors have sizes and lifetimes but no data, so that the
plan counts what the program itself would allocate, for every supported model; parameters, moments and what several
devices share follow by formulas.

What a plan reads and says:

- ``cards.py``: Figures of known cards: their memory and bandwidth, and what this program was measured to reach on them
- ``memory_plan.py``: The memory that a run takes on each device, part by part and phase by phase of an iteration
- ``planned_engines.py``: The rollout engines as they are planned: where their memory comes from
- ``quick_plan.py``: A plan in less than a second: two shallow models, and parts that grow linearly in the
  layers
- ``remedies.py``: Settings that make a run take less memory, each with the effect that it has on this run's plan
- ``run_settings.py``: The settings of a run that its memory and speed depend on
- ``text.py``: A plan as people read it
- ``time_plan.py``: The tokens of an iteration, and an estimate of its seconds

Formulas:

- ``engine_memory.py``: The memory of the rollout engines on a device that they share with the trainer
- ``optimizer_memory.py``: The memory of an optimiser: its moments, and what a step holds beside them
- ``parameters.py``: Counts of a rank's parameters: how many, in which dtype, trained or not, and what of them lies on a
  rank
- ``sharded_memory.py``: The memory that FSDP2 takes for a sharded model beyond its shards, while passes are made
- ``update_memory.py``: The memory of the passes of an update on one device: copies of weights, gradients, logits and
  activations

Passes on the meta device, and on the real one:

- ``allocation_tracker.py``: The bytes that are alive while a computation runs on the meta device, where nothing is
  stored
- ``calibration.py``: A small calibration: how fast this device makes forward and backward passes of a model's layers
- ``compiled_layer.py``: The bytes that a compiled layer keeps for its backward pass: the compiler's own choice, on the
  meta device
- ``meta_model.py``: A rank's model on the meta device: its parameters have shapes and dtypes, and no weights are read
- ``pass_memory.py``: The memory of one pass, found by making it on the meta device
- ``remembered.py``: Results that are kept for arguments which say all about themselves, but cannot be hashed
- ``stand_ins.py``: Stand-ins on the meta device for the two kernels of a pass: they allocate what the kernels do, and
  compute nothing
"""
