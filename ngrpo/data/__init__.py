"""Prompts: sources, chat templates, the data module.

- ``chat.py``: From a problem to token ids
- ``chat_template.py``: Chat templates of strangers: applied with a fixed date, and tried before they are relied on
- ``control_tokens.py``: Control tokens whose text stands in data: the text is encoded as any other, so that no
  question forges a turn
- ``curriculum.py``: Which usable problems are trained on when
- ``cursor.py``: The place in one source up to which its prompts have been drawn
- ``datamodule.py``: The data module: training stream and evaluation prompts
- ``inspection.py``: What a data set holds, and what training would leave out of it
- ``loader.py``: The endless, resumable stream of training prompts
- ``prepared.py``: A source with everything that turns its rows into prompts
- ``reasons.py``: What to do about rows that are left out
- ``screen.py``: What is left out of the data for its content
- ``settings.py``: What is said about one source of training problems
- ``sources/``: Where problems come from: the built-in demo, files, the Hugging Face hub
- ``word_problems/``: The generated word problems of the demo
"""
