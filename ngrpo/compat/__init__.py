"""Names of version 0.1 that have moved: they work for one version more, with a warning that names the new one.

- ``moved.py``: the tables, old to new, and what a name is called today;
- ``import_hook.py``: ``import ngrpo.schedule`` finds what has moved to ``ngrpo.training.optim.lr_schedule``;
- ``attributes.py``: the same for names out of modules that are packages today, such as ``ngrpo.rewards.terms.Term``.

`_target_` strings of users' yaml files, of checkpoints and of stored steps go through `moved.current` where they are
read (`ngrpo.config.renamed_targets`). Nothing else in the package imports from here, and the package imports nothing.
"""
