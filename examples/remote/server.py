"""The hub's process: it opens the log, lets agents in over WebSocket, and asks one of them."""

import asyncio
import sys

from turnline.knowledge import DiskKnowledgeStore
from turnline.network import Hub, HubClient, LocalLink, Passport, serve_ws

QUESTION = "How do bees find flowers?"


async def main(path: str = "story.db", port: str = "8765") -> None:
    hub = await Hub.open(DiskKnowledgeStore(path))
    link = LocalLink(hub)
    client = HubClient(link, hub=hub)
    async with serve_ws(hub, port=int(port)) as served:
        print(f"serving {served.url}", flush=True)
        user = await client.register_human(Passport(name="user", kind="human"))
        # The writer is known before it comes; its invitation waits for it.
        await link.register(Passport(name="writer"), None, None)
        channel = await user.open(
            "consulting", "writer", message=QUESTION, channel_id="bees", ack_timeout=3600.0
        )
        result = await channel.result()
        print(f"writer: {result.text}\n(closed: {result.reason})", flush=True)
    await client.close()
    await hub.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
