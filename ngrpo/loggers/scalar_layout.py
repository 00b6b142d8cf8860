"""The charts of TensorBoard's tab of custom scalars."""

from collections.abc import Mapping

Charts = Mapping[str, list[str | list[str]]]

LAYOUT: Mapping[str, Charts] = {
    "Learning": {
        "held-out": ["Multiline", ["eval/(.*/)?mean@1", "eval/(.*/)?pass@.*"]],
        "training reward": ["Multiline", ["train/reward", "train/mean@1"]],
        "training Pass@k": ["Multiline", ["train/pass@.*"]],
        "entropy": ["Multiline", ["policy/entropy"]],
        "loss": ["Multiline", ["policy/loss", "critic/loss"]],
        "KL": ["Multiline", ["policy/kl"]],
    },
    "Exploration": {
        "share of mixed positions": ["Multiline", ["exploration/gated_fraction", "exploration/rate"]],
        "cosine of fed vector and anchor": ["Multiline", ["exploration/cosine_.*"]],
        "weight on the anchor": ["Multiline", ["exploration/anchor_weight"]],
        "reward with and without mixing": ["Multiline", ["exploration/reward_.*"]],
        "distinct answers": ["Multiline", ["train/distinct_.*"]],
    },
    "Health": {
        "engine and trainer": ["Multiline", ["health/mismatch"]],
        "responses": ["Multiline", ["health/truncated", "health/zero_signal", "health/excluded", "health/timeouts"]],
        "entropy left": ["Multiline", ["health/entropy_left"]],
        "age of the rollouts' weights": ["Multiline", ["health/stale_weights"]],
        "gradient norm": ["Multiline", ["policy/grad_norm", "critic/grad_norm"]],
        "warnings": ["Multiline", ["health/warnings", "health/.*_warnings"]],
    },
}
"""By category and chart: regular expressions of tags."""
