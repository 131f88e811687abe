"""Staging: a job's output, where no reader of the table sees it, without locks.

Data files lie in a folder of the job's own, beside write-once documents (its plans, its result, verdicts, a failure).
Publishing makes them visible, collecting deletes them.
"""
