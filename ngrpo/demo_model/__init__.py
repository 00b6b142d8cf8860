"""How the shipped demo model was made; its files are in ``ngrpo/modeling/demo``.

- ``measuring.py``: What a demo model can do on problems that it was not pretrained on
- ``pretraining.py``: Pretrains a demo model from its recipe
- ``pretraining_text.py``: The texts that the demo models are pretrained on, as token ids
- ``recipe.py``: What a demo model is and how it is pretrained, for each size that there is
- ``responses.py``: What the demo models learn to answer: with the steps written out, in one order or another, or at
  once
- ``tokenizer.py``: The demo's tokenizer: byte-level BPE over the stories, digits one by one
"""

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)
