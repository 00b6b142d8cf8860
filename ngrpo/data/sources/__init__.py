"""Sources of problems: the built-in demo, files, the Hugging Face hub, objects of the user's.

- ``base.py``: The contract of a source of problems
- ``conversation.py``: Conversations in the records of data sets, read as messages
- ``countdown.py``: The countdown puzzles as a source
- ``demo.py``: The built-in word problems as a source
- ``endless.py``: Sources without an end, whose problems are made from their numbers
- ``fields.py``: The fields of a data set's records, read as problems
- ``files.py``: Problems in JSON, JSONL and parquet files
- ``generated.py``: The names of the built-in problem generators: word problems and countdown puzzles
- ``hub.py``: Problems streamed from the Hugging Face hub
- ``problem_text.py``: The texts of problems: normalised for comparison, and checked to be encodable
- ``records.py``: Problems in memory: the records of an object of the user's, and what they have in common with those of
  files
- ``resolve.py``: The source that the value of ``data.path`` names
"""

from ngrpo.data.sources.base import BOXED_INSTRUCTION, ProblemSource, Row
from ngrpo.data.sources.countdown import CountdownSource
from ngrpo.data.sources.demo import DemoSource
from ngrpo.data.sources.fields import Fields, normalise_answer, read_difficulty
from ngrpo.data.sources.files import FileSource
from ngrpo.data.sources.hub import HubSource
from ngrpo.data.sources.records import Records, RecordSource
from ngrpo.data.sources.resolve import DataPath, open_source

__all__ = [
    "BOXED_INSTRUCTION",
    "CountdownSource",
    "DataPath",
    "DemoSource",
    "Fields",
    "FileSource",
    "HubSource",
    "ProblemSource",
    "RecordSource",
    "Records",
    "Row",
    "normalise_answer",
    "open_source",
    "read_difficulty",
]
