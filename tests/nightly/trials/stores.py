"""Kind `store`: deletions that fail or lie, deaths between two of them, and a bit that flips in a file."""

import pyarrow.parquet as pq

from tests.nightly.trials.acts import create
from tests.nightly.trials.faults import NOTHING, Script, deletion_fault
from tests.nightly.trials.product import FULL
from tests.nightly.trials.world import AGE, HOUR, TABLE, World


def stores(world: World) -> None:
    """Much garbage, and a store that does not do what it is asked to."""
    create(world, **{"write.metadata.previous-versions-max": world.random.choice(("3", "100"))})
    world.append(world.records(2, 6))
    for _ in range(3):
        world.append(world.records(2, 5))
        world.now += world.random.choice((HOUR, 5 * HOUR, AGE + HOUR))
        world.run(_fault(world))
        if world.random.random() < 0.3:
            flipped_bit(world)
        world.now += 7 * HOUR
        world.maintain(_fault(world))
        if world.checker.unreadable:
            return


def _fault(world: World) -> Script:
    return deletion_fault(world.random) if world.random.random() < 0.7 else NOTHING


def flipped_bit(world: World) -> None:
    """A bit flips in a live file that Firn has written, and whose pages have checksums; then the file is restored."""
    paths = [path for path in world.checker.live_files() if "/_firn/" in path]
    if not paths:
        return
    path = world.random.choice(paths)
    at = _place(path, world.random.random())

    def flip(content: bytes) -> bytes:
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]

    files = world.checker.files
    files.damage(path, flip)
    world.log.append(f"a bit flips in {path}")
    world.happened("flipped bit")
    world.append(world.records(2, 5))
    world.run(lanes=FULL, force=True)
    files.restore(path)
    world.step("retry", lambda: world.firn.retry(TABLE))


def _place(path: str, part: float) -> int:
    """A place in the pages of a file's columns. A flip in its footer, which has no checksum, can end the process: Arrow
    calls std::terminate where it reads sizes of levels that do not match."""
    columns = pq.read_metadata(path).row_group(0)
    chunks = [columns.column(number) for number in range(columns.num_columns)]
    chunk = chunks[int(part * len(chunks))]
    first = chunk.dictionary_page_offset or chunk.data_page_offset
    return int(first) + int((part * len(chunks) % 1) * (chunk.total_compressed_size - 1))


EVENTS = ("flipped bit",)
"""What they are counted as."""
