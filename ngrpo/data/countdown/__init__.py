"""The countdown puzzles: reach a number from given ones, each used once, in any of many ways.

- ``generator.py``: The generator of countdown puzzles with a solution each, drawn from a key
- ``levels.py``: The difficulty levels of countdown puzzles, and their splits
- ``solver.py``: All solutions of a countdown puzzle, found by trying everything
"""
