"""From conf/ to checked objects.

- ``allowlist.py``: Which code a configuration may name: naming it means running it
- ``check.py``: The checked configuration: resolved, typed, and without a key that nothing reads
- ``earlier_settings.py``: Settings that checkpoints and stored answers of earlier versions do not know
- ``environment.py``: What a configuration takes from the environment, such as keys: used, and never stored or shown
- ``hydra_errors.py``: What Hydra and OmegaConf say about a mistake on the command line, in one sentence
- ``instantiate.py``: Objects built from `_target_` nodes
- ``permissions.py``: What the one who types a command permits, and no file that is read can permit itself
- ``ranges.py``: How large a number in a configuration may be, and that it is one; what else it must be is said by
  what it is for
- ``renamed_targets.py``: `_target_` strings under the names that the code had in earlier versions
- ``schema.py``: The typed configuration: every setting of conf/train.yaml and conf/evaluate.yaml, with its type and
  meaning
- ``target_settings.py``: The settings that build something, and the parts that fit each of them
- ``type_check.py``: Whether a value from a configuration can be meant by an annotation
- ``yaml_limits.py``: A YAML file of a user: how large and deep it may be once its aliases are written out
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
