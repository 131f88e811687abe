"""Trials: seeds draw what a table lives through, and a checker that knows nothing of Firn looks after every step.

``product`` alone imports Firn. ``world`` holds a catalog, a store and a clock of its own. In ``gate``
something goes wrong; ``trial`` says what each kind of seed draws; ``checker`` looks after every step.
"""
