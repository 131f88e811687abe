"""Read ahead: another thread fetches and decodes the next batch while a task works on the current one."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """``items`` in order, prefetched by one; an error is raised in the place of its item."""
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
