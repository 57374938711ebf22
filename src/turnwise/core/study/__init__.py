"""What can be learned of a graph or a log without running it. Pure, like all of `core`."""
