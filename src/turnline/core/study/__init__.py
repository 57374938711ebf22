"""What can be learned of a graph or a log without anybody speaking. Pure, like all of `core`.

A graph is explored, linted, simulated and drawn; a log is asked why the floor moved, and what differs.
Nothing that decides or folds imports any of it. What it says of a graph rests on the same router, and it
writes nothing.
"""
