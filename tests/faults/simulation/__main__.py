"""Run seeds again, or count what happens in many.

python -m tests.faults.simulation 1234           every line, and when it landed
python -m tests.faults.simulation --digest 1 2   a digest of every byte on the log of each
python -m tests.faults.simulation --count 2000   what happened in the first 2,000 seeds, and which are wrong
"""

from __future__ import annotations

import sys
from collections import Counter

from tests.faults.simulation.world import World


def tell(seed: int) -> None:
    world = World(seed)
    problems = world.run()
    for channel_id in sorted(world.store.log.records):
        for at, line in zip(world.store.landed_at[channel_id], world.store.read(channel_id), strict=True):
            said = "" if line.seq == 1 else str(line.event_data)[:120]
            print(f"{at:9.3f} {channel_id} {line.seq} {line.event_type} {line.sender_id} {said}")
    print(*problems or ["nothing is wrong"], sep="\n")


def count(seeds: int) -> None:
    """Print the problems of the first seeds, then the figures of all."""
    figures, wrong = Counter[str](), 0
    for seed in range(seeds):
        world = World(seed)
        problems = world.run()
        figures += world.figures
        wrong += bool(problems)
        if problems:
            print(f"seed {seed}:", *problems, sep="\n    ", flush=True)
    print(f"{seeds} seeds, {wrong} wrong;", ", ".join(f"{name}: {n}" for name, n in sorted(figures.items())))


def main(*arguments: str) -> None:
    if arguments[0] == "--count":
        count(int(arguments[1]))
        return
    is_digest = arguments[0] == "--digest"
    for seed in arguments[1:] if is_digest else arguments:
        if is_digest:
            world = World(int(seed))
            world.run()
            print(world.digest)
        else:
            tell(int(seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
