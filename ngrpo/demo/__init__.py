"""The embedded demo: a small model, its tokenizer and a generator of word problems."""
