"""The worked examples of the contract: from Confluent's and WarpStream's documents to the table."""

from tests.support.topics import Record, Topic, updates

ADDRESSES = updates(
    "1001=4 Privet Dr",
    "1002=221B Baker Street",
    "1003=Milkman Road",
    "1002=21 Jump St",
    "1001=Paper St",
    "1001=Paper Road 21",
    start=1,
)


def test_addresses_of_users(topic: Topic) -> None:
    topic.land(ADDRESSES).clean("full")
    assert [(record.offset, record.value) for record in topic.seen()] == [
        (3, b"Milkman Road"),
        (4, b"21 Jump St"),
        (6, b"Paper Road 21"),
    ]


def test_addresses_with_a_tail(topic: Topic) -> None:
    topic.land(ADDRESSES[:3]).clean("full")
    assert topic.levels() == [3]
    topic.land(ADDRESSES[3:]).clean("full", force=True)
    assert topic.offsets() == [3, 4, 6]
    assert topic.levels() == [3]


def test_the_active_segment_is_left_alone(topic: Topic) -> None:
    """C11: what lies in the active segment neither goes nor makes an older record go."""
    topic.create(active_segments="1")
    topic.land(updates("p3=10", "p5=7", "p3=11", "p6=25", "p6=12", "p5=14"), updates("p5=17", start=6))
    topic.clean("full")
    assert topic.offsets() == [2, 4, 5, 6]


def test_editions_of_books(topic: Topic) -> None:
    topic.land(updates("A=1", "B=1", "A=2", "C=1", "A=3", start=1)).clean("full")
    assert topic.offsets() == [2, 4, 5]


def test_landed_segments_become_one_merged_segment_per_32(topic: Topic) -> None:
    """32 landed segments become one L1 segment (C13); the 33rd waits for its neighbours."""
    topic.create(merge_segments="32", clean_segments="32")
    topic.land(*([Record(offset, b"k%d" % (offset % 3), b"v")] for offset in range(65)))
    counts = topic.clean("merge")
    assert [(one.segments_in, one.segments_out, one.superseded) for one in counts] == [(64, 2, 0)]
    assert topic.levels() == [1, 1, 0]
    assert [(segment.base_offset, segment.last_offset) for segment in topic.segments()] == [(0, 31), (32, 63), (64, 64)]
    assert topic.offsets() == list(range(65))
