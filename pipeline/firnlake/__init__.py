"""Firn: Kafka's log compaction for Apache Iceberg tables."""
