"""The generated word problems of the demo.

- ``levels.py``: How hard the demo's problems are, and which of them are kept for what
- ``problems.py``: Arithmetic word problems of a few steps, drawn from a key
- ``story_words.py``: The words of the demo's stories, one tuple for each slot
"""
