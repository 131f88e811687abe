"""Proof for compacted Kafka logs: promises, as SQL, that check the output against Kafka's contract.

Usable without the rest of Firn: ``judge`` finds what breaks a promise, in records from any source; ``verdicts`` has
Great Expectations judge the findings and stores the results.
"""
