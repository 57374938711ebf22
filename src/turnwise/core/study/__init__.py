"""Graphs, studied before anybody speaks: explored, linted, simulated, drawn.

Nothing on the path of an envelope imports this. It reads the same graphs and asks the same
router, and it writes nothing.
"""
