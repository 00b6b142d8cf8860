"""Optimisers and their parameter groups, learning rates, gradient norms, the loss scale and offloading.

- ``grad_norm.py``: The norm of a gradient whose parts lie on different meshes
- ``loss_scale.py``: The dynamic scale of a loss whose gradients are computed in float16
- ``lr_schedule.py``: The learning rate over the optimiser steps of a run, as a factor on its setting
- ``offload.py``: Offloading of optimisers and reference to host memory while they are not needed
- ``optimizers.py``: Optimisers beside PyTorch's own
- ``parameter_groups.py``: The parameters of policy and critic, in the groups that their optimisers take
"""
