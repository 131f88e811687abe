"""Publish results: one commit on the table carries out the plans of a job, by metadata alone, without a JVM."""
