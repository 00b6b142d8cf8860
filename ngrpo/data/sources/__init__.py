"""Where problems come from: the built-in demo, files, the Hugging Face hub.

- ``base.py``: The contract of a source of problems
- ``demo.py``: The built-in problem generator as a source
- ``fields.py``: From a record of a data set to a problem
- ``files.py``: Problems in JSON, JSONL and parquet files
- ``hub.py``: Problems streamed from the Hugging Face hub
- ``problem_text.py``: Texts of problems: which can be encoded, and when two are the same but for how they are set
- ``resolve.py``: From the value of ``data.path`` to a source
"""

from ngrpo.data.sources.base import BOXED_INSTRUCTION, ProblemSource, Row
from ngrpo.data.sources.demo import DemoSource
from ngrpo.data.sources.fields import Fields, normalise_answer, read_difficulty
from ngrpo.data.sources.files import FileSource
from ngrpo.data.sources.hub import HubSource
from ngrpo.data.sources.resolve import open_source

__all__ = [
    "BOXED_INSTRUCTION",
    "DemoSource",
    "Fields",
    "FileSource",
    "HubSource",
    "ProblemSource",
    "Row",
    "normalise_answer",
    "open_source",
    "read_difficulty",
]
