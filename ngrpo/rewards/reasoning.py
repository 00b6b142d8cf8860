"""The reasoning block that a prompt opens, as a reward sees it."""

_START = "<think>"


def opening(prompt: str) -> str:
    """Returns the reasoning marker that a prompt ends with, "" if it ends with none.

    A reward sees it before the response: otherwise a response cut off inside the block could not be told from one of a
    model that opens no block, and a box inside unfinished reasoning would count.
    """
    return _START if prompt.rstrip().endswith(_START) else ""
