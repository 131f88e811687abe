"""Reads ahead: while a task works on a batch, the next one is fetched and decoded in another thread."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """``items`` in their order, one of them made in advance; errors are raised where the item would have come."""
    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1, "firn-ahead") as reader:
        coming = reader.submit(next, source, end)
        while True:
            item = coming.result()
            if item is end:
                return
            coming = reader.submit(next, source, end)
            yield item  # type: ignore[misc]  # all but the end are items
