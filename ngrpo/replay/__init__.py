"""Replay for any trainer: a model of transformers sees the inputs that rollouts saw; imports torch alone.

    records = RecordTensors.of(rollouts, attention_mask)  # beside input_ids, [B, T]
    with replayed(model, records):
        logits = model(input_ids=input_ids, attention_mask=attention_mask).logits

- ``hook.py``: A model's input embedding that replays records while a block runs
- ``records.py``: The records of rollouts as tensors beside ``input_ids``
"""
