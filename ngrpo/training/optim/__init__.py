"""Optimisers and their parameter groups, learning rates, gradient norms and offloading.

- ``grad_norm.py``: The norm of a gradient whose parts lie on different meshes
- ``lr_schedule.py``: The learning rate over the optimiser steps of a run, as a factor on its setting
- ``offload.py``: Offloading of optimisers and reference to host memory while they are not needed
- ``optimizers.py``: Optimisers beside PyTorch's own
- ``parameter_groups.py``: The parameters of policy and critic, in the groups that their optimisers take
"""
