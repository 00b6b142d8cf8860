"""The embedded demo: a small model, its tokenizer and a generator of word problems.

The folder at :data:`MODEL_PATH` is an ordinary Hugging Face model, made by ``scripts/make_demo_model.py``.
"""

from pathlib import Path

MODEL_PATH = Path(__file__).parent / "model"
