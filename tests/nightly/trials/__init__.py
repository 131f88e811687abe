"""Trials: seeds draw what a table lives through, and a checker that knows nothing of Firn looks after every step.

``product`` alone imports Firn. ``world`` holds catalogs, a store and a clock of its own. In ``gate`` and ``store``
something goes wrong; ``kinds`` says what each kind of seed draws; ``checker`` looks after every step.
"""
