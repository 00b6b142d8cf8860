"""Prompts: sources, chat templates, the data module.

A row goes from its source (``sources/``) through the filter (``row_filter.py``) and the chat template (``chat.py``) to
a prompt (``prompt_source.py``); the stream of each source (``source_stream.py``) is one part of the mixture that
training draws from (``loader.py``). ``datamodule.py`` puts them together.

- ``chat.py``: The prompt of a problem, as token ids
- ``chat_template.py``: Chat templates of other people's models: applied with a fixed date, and tested before use
- ``control_tokens.py``: Control tokens whose text stands in data: the text is encoded as any other, so that no
  question forges a turn
- ``countdown/``: The countdown puzzles: reach a number from given ones, each used once, in any of many ways
- ``curriculum.py``: Curricula: the choice of the problems that are trained on in each epoch and iteration
- ``datamodule.py``: The data module: training stream and evaluation prompts
- ``evaluation_prompts.py``: The evaluation problems of a run: their source, the prompts made of its first rows, and
  their fingerprints
- ``exclusion_remedies.py``: Remedies for excluded rows, and the error for data without a usable row
- ``inspection.py``: The inspection of a data set: its size, lengths, difficulties and duplicates, and the rows that
  training excludes
- ``loader.py``: The endless, resumable stream of training prompts
- ``prompt_source.py``: The prompts of a source: its rows, filtered and built into prompts, or the reason why a row
  has none
- ``row_filter.py``: The filter of rows by content: difficulty, evaluation problems, duplicates
- ``settings.py``: The settings of one source of training problems, and the sources of a mixture by name
- ``source_stream.py``: The endless stream of prompts of one source, and the position up to which it has been drawn
- ``sources/``: Sources of problems: the built-in demo, files, the Hugging Face hub, objects of the user's
- ``word_problems/``: The generated word problems of the demo
"""
