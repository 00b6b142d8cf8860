"""Ranks, collectives, and the processes of a run.

- ``collectives.py``: Ranks and world sizes of this process, and collectives on Python objects
- ``parent_watch.py``: The watch that ends the processes of a run whose first process was killed
- ``rendezvous.py``: Rendezvous of the training processes of one machine on its loopback, which no other machine
  reaches
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
