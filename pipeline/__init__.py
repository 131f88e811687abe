"""Firn: Kafka-grade log compaction for Apache Iceberg lakes.

Each verb is a room and a command: ``land``, ``sense``, ``plan``, ``compact``, ``validate``, ``publish``. Rooms exchange
only plans (JSON) and stages (Iceberg tables).
"""
