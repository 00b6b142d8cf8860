"""The generated word problems of the demo.

- ``generator.py``: The generator of arithmetic word problems of a few steps, drawn from a key
- ``levels.py``: The difficulty levels of the demo's problems, and their splits
- ``story_words.py``: The words of the demo's stories, one tuple for each slot
"""
