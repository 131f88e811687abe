"""Reads the output of ``kafka-configs --describe --entity-type topics`` (Kafka docs, "Topic Configs")."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Final

from firnlake.errors import RefusedError
from firnlake.table.settings import KAFKA

_TOPIC: Final = re.compile(r"(?:Dynamic|All) configs for topic (?P<topic>\S+) are:\s*")
_CONFIG: Final = re.compile(r"\s+(?P<name>[a-z][a-z0-9._]*)=(?P<value>.*?)(?: sensitive=(?:true|false)\b.*)?\s*")

_OTHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compression.*": "codec of record batches; nearest: Iceberg's write.parquet.compression-codec",
        "file.delete.delay.ms": "delay of deletions; nearest: Iceberg's history.expire.max-snapshot-age-ms",
        "flush.*": "when a broker forces its log to disk; a commit to a table is durable",
        "*index*.bytes": "layout of the index files of a broker's log; a table has none",
        "local.retention.*": "tiered storage of brokers; nearest: retention.ms, retention.bytes",
        "max.message.bytes": "what brokers accept from producers; landed records have passed it",
        "message.*": "what brokers do to records they take or send; Firn leaves records as landed",
        "min.insync.replicas": "replication between brokers; a table's store keeps its files",
        "*.replication.throttled.replicas": "replication between brokers; a table's store keeps its files",
        "preallocate": "layout of a broker's log files; a table has none",
        "remote.*": "tiered storage of brokers; a table is in one store",
        "segment.*ms": "when a broker closes its active segment; nearest: active.segments",
        "unclean.leader.election.enable": "replication between brokers; a table's store keeps its files",
    }
)
"""Why a topic config of Kafka that is no setting of Firn has no meaning in a table, or what is nearest to it, by a
pattern of its name (Kafka docs, "Topic Configs")."""


def why_not(name: str) -> str:
    """Why the topic config ``name`` is not imported."""
    return next((why for pattern, why in _OTHERS.items() if fnmatchcase(name, pattern)), "Firn does not know it")


@dataclass
class KafkaConfigs:
    """The configs of topics as Kafka tells them."""

    known: dict[str, dict[str, str]] = field(default_factory=dict)
    """By topic, the name and the value of each config that is also a setting of Firn."""
    unknown: dict[str, set[str]] = field(default_factory=dict)
    """By name of a config that Firn does not have, its topics."""


def read_kafka_configs(path: Path) -> KafkaConfigs:
    """The configs in the file at ``path``.

    Raises RefusedError, which names the line, if the file is not the output of ``kafka-configs``.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(f"file {path} can't be read: {error}; allowed: text in UTF-8") from error
    return _parsed(lines, path)


def _parsed(lines: Iterable[str], path: Path) -> KafkaConfigs:
    found = KafkaConfigs()
    topic = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if head := _TOPIC.fullmatch(line):
            topic = head["topic"]
            found.known.setdefault(topic, {})
        elif topic is not None and (config := _CONFIG.fullmatch(line)):
            if config["name"] in KAFKA:
                found.known[topic][config["name"]] = config["value"]
            else:
                found.unknown.setdefault(config["name"], set()).add(topic)
        else:
            raise RefusedError(
                f"file {path}: line {number} is not a topic config; allowed: the output of `kafka-configs "
                "--bootstrap-server HOST --describe --all --entity-type topics`"
            )
    if topic is None:
        raise RefusedError(f"file {path} names no topic; allowed: the output of `kafka-configs --describe --all`")
    return found
