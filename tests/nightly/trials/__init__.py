"""Trials: seeds draw what a table lives through, and a checker that knows nothing of Firn looks after every step.

``world`` holds a catalog, a store, a clock and Firn; in ``gate`` something goes wrong; ``kinds`` says what each kind of
seed draws; ``checker`` looks after every step.
"""
