"""Random faults against real cleanings: a seed says what is landed, what goes wrong where, and who gets in between.

python -m tests.faults.harness --seeds 1-500
"""
