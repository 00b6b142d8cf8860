"""From conf/ to checked objects.

- ``allowlist.py``: The allowlist of code that a configuration may name: naming it means running it
- ``check.py``: The checked configuration: resolved, typed, and without a key that nothing reads
- ``earlier_loggers.py``: The form of the setting ``logger`` in earlier versions: one logger, without a name
- ``earlier_settings.py``: Values of settings that checkpoints and stored answers of earlier versions do not know
- ``config_dir.py``: The folder of ``--config-dir`` as ``${config_dir:}``: how a yaml names the files that lie beside it
- ``demo_default.py``: The resolver ``${for_demo:${model.path},A,B}``: A for the demo model and those trained from it, B
  for others
- ``engine_dtype.py``: The resolver ``${engine_dtype:PRECISION}``: float16 for the engine of a trainer that computes in
  it, else auto
- ``environment.py``: Values from the environment, such as keys: used, and never stored or shown
- ``hydra_errors.py``: The one sentence for a mistake on the command line that Hydra or OmegaConf complains of
- ``instantiate.py``: Objects built from `_target_` nodes
- ``override_quoting.py``: Quoting of texts for Hydra's grammar of overrides
- ``own_engines.py``: A user's own engine in place of the default's: ``rollout.engine._target_=my.Engine``
- ``permissions.py``: Permissions that are typed on the command line, and that no file can give itself
- ``ranges.py``: The ranges of numbers in a configuration; narrower ones are the classes' own
- ``removed_choices.py``: Choices of earlier versions that are no more, and what to do instead
- ``renamed_targets.py``: `_target_` strings under the names that the code had in earlier versions
- ``run_name.py``: The name of a run, by which loggers and folders tell it apart
- ``schema.py``: The typed configuration: every setting of conf/train.yaml, evaluate.yaml, sample.yaml and
  serve.yaml, explained
- ``target_settings.py``: The settings that build something, and the parts that fit each of them
- ``type_check.py``: The comparison of a value from a configuration with a type annotation
- ``yaml_limits.py``: Limits on a user's YAML file: how large and deep it may be once its aliases are written out
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
