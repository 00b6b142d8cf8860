"""The tensors that a call writes into, seen by PyTorch's own count of changes in place."""

from collections.abc import Callable, Mapping

from torch import Tensor


def watch(tensors: Mapping[str, Tensor]) -> Callable[[], list[str]]:
    """Returns a function that names those of the tensors, or of what shares their memory, written into since.

    Tensors of inference mode have no such count, and are left unwatched.

    Args:
        tensors: any, by name.
    """
    before = {name: tensor._version for name, tensor in tensors.items() if not tensor.is_inference()}
    return lambda: [name for name, version in before.items() if tensors[name]._version != version]
