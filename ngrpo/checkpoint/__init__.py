"""Checkpoints: complete folders on disk, what they belong to, and the exported policy.

- ``compatibility.py``: The identity of a run, and the settings that a resume may change
- ``export.py``: The policy as a Hugging Face folder
- ``export_target.py``: The folder that an export is written to: new or empty
- ``folders.py``: Checkpoint folders on disk: complete or absent, with a pointer to the latest
- ``hub_push.py``: The push of an exported model to the Hugging Face Hub
- ``manifest.py``: The manifest of a checkpoint, by which damage and foreign checkpoints are noticed before anything
  is loaded
- ``own_code.py``: The code of one's own that a run's settings name, by its files' contents
- ``saved_runs.py``: The list of the runs in an outputs folder, in the order in which they saved last
- ``shards.py``: Sharded checkpoints without running what is in them
"""
