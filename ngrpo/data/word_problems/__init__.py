"""The generated word problems of the demo.

- ``levels.py``: The difficulty levels of the demo's problems, and their splits
- ``problems.py``: Arithmetic word problems of a few steps, drawn from a key
- ``story_words.py``: The words of the demo's stories, one tuple for each slot
"""
