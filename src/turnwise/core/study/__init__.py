"""Graphs, studied before anybody speaks: explored, linted, simulated, drawn.

Nothing that decides on an envelope or folds one imports this. It reads the same graphs and asks the same
router, and it writes nothing.
"""
