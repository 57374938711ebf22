"""Let seeds happen once more: what is on the log of each, and what is wrong with it.

python -m tests.faults.simulation 1234         every line, and when it landed
python -m tests.faults.simulation --digest 1 2 a digest of every byte on the log of each
"""

from __future__ import annotations

import sys

from tests.faults.simulation.world import World


def tell(seed: int) -> None:
    world = World(seed)
    problems = world.run()
    for channel_id in sorted(world.store.log.records):
        for at, line in zip(world.store.landed_at[channel_id], world.store.read(channel_id), strict=True):
            said = "" if line.seq == 1 else str(line.event_data)[:120]
            print(f"{at:9.3f} {channel_id} {line.seq} {line.event_type} {line.sender_id} {said}")
    print(*problems or ["nothing is wrong"], sep="\n")


def main(*arguments: str) -> None:
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
