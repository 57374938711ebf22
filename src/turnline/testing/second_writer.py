"""Another process on the same log: `python -m turnline.testing.second_writer ADDRESS NAME COUNT CHANNEL...`

Says `ready`, waits for a line on its standard input, appends COUNT envelopes to
each channel at once, against whoever else is writing, and says `done`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from turnline.log.address import open_log
from turnline.log.base import Log
from turnline.testing.lines import say


async def write(log: Log, name: str, count: int, channel_ids: Sequence[str]) -> None:
    """Append `count` envelopes to each channel, all channels at once."""

    async def fill(channel_id: str) -> None:
        for number in range(count):
            await say(log, channel_id, f"{name}-{number}", sender_id=name)

    await asyncio.gather(*map(fill, channel_ids))


async def main(address: str, name: str, count: str, *channel_ids: str) -> None:
    log = open_log(address)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await write(log, name, int(count), channel_ids)
    await log.close()
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
