"""What a token costs: making one, and reading one, beside a bare `biscuit_auth` verify in the same run.

Bare checks the signature and evaluates; `read` limits, inspects and evaluates; the process does so where
it can be killed; an authenticator that has met the token asks only whether it has expired or was revoked.
The ratios are the figures to watch; microseconds belong to the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from time import perf_counter

from biscuit_auth import AuthorizerBuilder, Biscuit, PublicKey

from turnline.hub.timers import SystemClock, sortable_ids
from turnline.log.memory import MemoryLog
from turnline.server.auth.biscuit import mint
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.keys import RootKey
from turnline.server.auth.process import ReadingProcess
from turnline.server.auth.reading import read
from turnline.server.auth.revocation import Revocations
from turnline.server.auth.tokens import TokenAuthenticator

CALLS = 500
REPEATS = 7
KEY = RootKey.from_text("11" * 32, where="this benchmark")
NOW = datetime.now(UTC).replace(microsecond=0)
PUBLIC_KEY = PublicKey(f"ed25519/{KEY.public}")


async def microseconds(act: Callable[[], Awaitable[object]]) -> float:
    """The best of a few runs: the others measure the neighbours."""
    best = float("inf")
    for _ in range(REPEATS):
        start = perf_counter()
        for _ in range(CALLS):
            await act()
        best = min(best, perf_counter() - start)
    return best / CALLS * 1e6


def minted() -> str:
    scopes = ["runs:start:*", "runs:read"]
    return mint(
        KEY, user_id="alice", groups=["ops"], scopes=scopes, expires_at=NOW + timedelta(days=1), now=NOW
    )


async def bare(token: str) -> None:
    found = Biscuit.from_base64(token, PUBLIC_KEY)
    builder = AuthorizerBuilder('time({now}); allow if user("alice")', {"now": NOW})
    limits = builder.limits()  # type: ignore[attr-defined]  # The library's stubs lack both methods.
    limits.max_time = timedelta(seconds=1)  # The default, a millisecond, is often over on a busy machine.
    builder.set_limits(limits)  # type: ignore[attr-defined]
    builder.build(found).authorize()


async def main() -> None:
    token, clock = minted(), SystemClock()
    process = ReadingProcess(KEY.public, clock)
    revocations = Revocations(MemoryLog(), clock, sortable_ids(clock))
    authenticator = TokenAuthenticator(process, revocations, clock)

    async def made() -> str:
        return minted()

    async def inline() -> object:
        return read(token, public_key=KEY.public, now=NOW)

    if (await process.read(token, now=NOW)) != read(token, public_key=KEY.public, now=NOW):
        raise SystemExit("the two do not agree; the figures would mean nothing")
    floor = await microseconds(lambda: bare(token))
    costs = {
        "mint (and read back)": await microseconds(made),
        "read": await microseconds(inline),
        "read in the process": await microseconds(lambda: process.read(token, now=NOW)),
        "authenticate, met before": await microseconds(
            lambda: authenticator.authenticate(Credentials(token))
        ),
    }
    await process.close()

    print(f"{'bare biscuit_auth verify':<26}{floor:8.1f} µs")
    for name, cost in costs.items():
        print(f"{name:<26}{cost:8.1f} µs   {cost / floor:5.2f} times bare")


if __name__ == "__main__":
    asyncio.run(main())
