"""The countdown puzzles: reach a number from given ones, each used once, in any of many ways.

- ``expression.py``: Arithmetic expressions: their exact value, the numbers in them, and one form for all that do the
  same
- ``generator.py``: The generator of countdown puzzles with a solution each, drawn from a key
- ``levels.py``: The difficulty levels of countdown puzzles, and their splits
- ``solver.py``: All solutions of a countdown puzzle, found by trying everything
"""
