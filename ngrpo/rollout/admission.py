"""The order in which an engine starts requests: those of one prompt next to each other, the longest first.

A rollout is the same in any order. Next to each other, requests compute their prompt once; and a long response that
starts last runs on alone when the others have finished.
"""

from collections.abc import Sequence

from ngrpo.types.rollouts import Request


def admission_order(requests: Sequence[Request], max_new_tokens: int) -> list[int]:
    """Returns the numbers of the requests in the order in which they should start.

    Prompts are ordered by the longest response that is expected of them, the requests of a prompt by their own; what is
    alike stays in the given order. Without `Request.expected_tokens` a response is as long as it may become.

    Args:
        requests: in any order.
        max_new_tokens: most response tokens of each, those of a prefix included.
    """
    lengths = [_expected(request, max_new_tokens) for request in requests]
    of_prompt: dict[tuple[int, ...], list[int]] = {}
    for number, request in enumerate(requests):
        of_prompt.setdefault(request.prompt_ids, []).append(number)
    groups = [sorted(numbers, key=lambda number: -lengths[number]) for numbers in of_prompt.values()]
    groups.sort(key=lambda numbers: -lengths[numbers[0]])
    return [number for numbers in groups for number in numbers]


def _expected(request: Request, max_new_tokens: int) -> int:
    """Returns how many tokens a request is expected to generate."""
    most = request.limit(max_new_tokens)
    whole = most if request.expected_tokens is None else min(request.expected_tokens, most)
    return max(0, whole - request.given)
