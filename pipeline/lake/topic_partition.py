"""The topic partition: Kafka's unit of order, and Firn's unit of cleaning."""

from typing import NamedTuple

from pipeline.errors import RefusedError


class TopicPartition(NamedTuple):
    """A topic and the number of one of its partitions."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """The name in Kafka's form: ``orders-3``."""
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> "TopicPartition":
        """Parse Kafka's form, such as ``orders-3``; RefusedError for any other ``text``."""
        topic, dash, partition = text.rpartition("-")
        if not dash or not (partition.isascii() and partition.isdigit()):
            raise RefusedError(f"{text!r} is not a topic partition; allowed: <topic>-<partition>, such as orders-0")
        return cls(topic, int(partition))
