"""A small reward model to try the setting with: a classifier on top of the embedded demo model, not trained."""

import sys

import torch
from transformers import AutoModelForSequenceClassification

from ngrpo.modeling.loading import ModelSource

if __name__ == "__main__":
    folder = sys.argv[1]
    source = ModelSource()
    torch.manual_seed(0)
    tokenizer = source.tokenizer()
    model = AutoModelForSequenceClassification.from_pretrained(source.location, num_labels=1)
    model.config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"reward model in {folder}")
