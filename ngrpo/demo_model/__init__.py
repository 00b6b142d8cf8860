"""The recipe of the shipped demo model, whose files are in ``ngrpo/modeling/demo``.

- ``lessons.py``: The lessons of the demo models: questions with responses to them, and problems to be measured on
- ``measuring.py``: The accuracy of a demo model on problems that it was not pretrained on
- ``pretraining.py``: The pretraining of a demo model from its recipe
- ``pretraining_text.py``: The texts that the demo models are pretrained on, as token ids
- ``recipe.py``: The recipes of the demo models: shape, data and pretraining, one a size
- ``responses.py``: The responses that demo models learn: with the steps written out, in one order or another, or at
  once
- ``tokenizer.py``: The demo's tokenizer: byte-level BPE over the stories, digits one by one
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
