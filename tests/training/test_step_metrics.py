import torch

from ngrpo.training.step_metrics import average


def step(sequences: int, ratio: float, worst: float) -> dict[str, torch.Tensor]:
    values = {"policy/sequences": sequences, "policy/ratio": ratio, "rollout/mismatch_max": worst}
    return {name: torch.tensor(float(value)) for name, value in values.items()}


def test_means_and_extremes_of_the_steps() -> None:
    found = average([step(4, 1.0, 0.1), step(8, 1.5, 0.3)])
    assert found == {"policy/sequences": 6.0, "policy/ratio": 1.25, "rollout/mismatch_max": torch.tensor(0.3).double()}


def test_a_step_without_samples_does_not_count() -> None:
    assert average([step(4, 1.0, 0.1), step(0, 0.0, 0.0)])["policy/ratio"] == 1.0
    assert average([step(0, 0.0, 0.0)])["policy/sequences"] == 0.0
