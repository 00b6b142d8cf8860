"""PyTorch's settings for the whole process."""

import torch

from ngrpo.errors import SettingError

MATMUL_PRECISIONS = ("highest", "high", "medium")


def set_torch(threads: int | None, matmul_precision: str) -> None:
    """Sets CPU threads and the precision of float32 matrix products.

    Args:
        threads: None leaves them.
        matmul_precision: as torch.set_float32_matmul_precision has it: "highest" multiplies in float32; "high" lets
            GPUs round the factors to TF32 (10 bits), "medium" to bfloat16 (7 bits). Sums stay in float32.

    Raises:
        SettingError: no threads, or an unknown precision.
    """
    if threads is not None and threads < 1:
        raise SettingError(f"trainer.threads={threads} is too small; choose 1 or more, or null.")
    if matmul_precision not in MATMUL_PRECISIONS:
        raise SettingError(
            f"trainer.matmul_precision={matmul_precision} is not known; choose one of {', '.join(MATMUL_PRECISIONS)}."
        )
    if threads is not None:
        torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(matmul_precision)


def accelerator_of(name: str) -> str:
    """Resolves "auto" to gpu with CUDA, else to cpu (Apple's MPS has no float64, which metrics use)."""
    if name == "auto":
        return "gpu" if torch.cuda.is_available() else "cpu"
    return name
