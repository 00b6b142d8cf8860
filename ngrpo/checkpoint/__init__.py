"""Checkpoints: complete folders on disk, what they belong to, and the exported policy.

- ``compatibility.py``: What a checkpoint belongs to, and which settings a resumed run may change
- ``export.py``: The policy as a Hugging Face folder
- ``export_target.py``: Where an export is written: a folder that is not there yet, or an empty one
- ``folders.py``: Checkpoint folders on disk: complete or absent, with a pointer to the latest
- ``manifest.py``: What a checkpoint holds, so that damage and foreign checkpoints are noticed before anything is
  loaded
- ``saved_runs.py``: Which run of an outputs folder saved last, whatever its clock said
- ``shards.py``: Sharded checkpoints without running what is in them
"""
