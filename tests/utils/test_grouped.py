"""Groups of consecutive items keep the order and the size."""

from collections.abc import Iterator

from ngrpo.utils.grouped import grouped


def test_groups_keep_the_order_and_the_size() -> None:
    assert list(grouped([3, 3, 9, 1, 2, 3], 6, int)) == [[3, 3], [9], [1, 2, 3]]
    assert list(grouped([0, 0, 6, 0, 1], 6, int)) == [[0, 0, 6, 0], [1]]
    assert list(grouped([9], 6, int)) == [[9]]
    assert list(grouped([], 6, int)) == []


def test_no_more_is_read_than_a_group_needs() -> None:
    read = []

    def items() -> Iterator[int]:
        for item in (4, 2, 5, 6):
            read.append(item)
            yield item

    assert next(grouped(items(), 6, int)) == [4, 2]
    assert read == [4, 2, 5]
