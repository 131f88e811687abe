"""Firn: Kafka-grade log compaction for Apache Iceberg lakes.

One verb is one room is one command: ``land``, ``sense``, ``plan``, ``compact``, ``validate``, ``publish``. Rooms hand
each other a plan (JSON) or a stage (an Iceberg table), and nothing else.
"""
