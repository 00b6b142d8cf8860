"""Old names of what has moved since version 0.1, kept for one version.

Each works with a warning that names the new one:

- ``attributes.py``: Names as attributes of modules that do not define them: old ones, and those that are imported when
  asked for
- ``import_hook.py``: The finder of modules under the names that they had
- ``moved.py``: The tables of what has moved since version 0.1: old name, new name

`_target_` strings of users' yaml files, of checkpoints and of stored steps go through `moved.current` where they are
read (`ngrpo.config.renamed_targets`). A module that a name has left calls `attributes.serve_old_names`. This package
imports nothing of the others, so that each of them can.
"""
