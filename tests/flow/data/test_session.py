"""`ctx["_session"]`: SQLAlchemy's, except that it ends with its step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import text

from turnline.errors import CommitRefused
from turnline.flow.data.session import StepSession

from .stage import emails, opened, stored, unit

pytestmark = pytest.mark.usefixtures("everywhere")


async def commit(session: StepSession) -> None:
    await session.commit()


async def commit_behind(session: StepSession) -> None:
    await session.run_sync(lambda blocking: blocking.commit())


async def commit_the_connection(session: StepSession) -> None:
    await (await session.connection()).commit()


async def commit_by_a_block(session: StepSession) -> None:
    await session.rollback()
    async with session.begin():
        await session.execute(
            text("INSERT INTO company SELECT 'x', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, 'b'")
        )


def saying(statement: str) -> Callable[[StepSession], Awaitable[None]]:
    async def say(session: StepSession) -> None:
        await session.execute(text(statement))

    return say


@pytest.mark.parametrize(
    "way",
    [
        commit,
        commit_behind,
        commit_the_connection,
        commit_by_a_block,
        *map(saying, ["COMMIT", "commit;", " END", "/* a */ COMMIT", "-- a\nCOMMIT", "BEGIN", "ROLLBACK"]),
    ],
)
async def test_f12_a_step_cannot_commit_by_itself(way: Callable[[StepSession], Awaitable[None]]) -> None:
    async with opened() as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            await work.flush()
            with pytest.raises(CommitRefused, match="flush"):
                await way(work.session)

        assert await stored(data) == await stored(data, "Company") == []


async def test_f12_a_step_that_tried_to_commit_can_go_on() -> None:
    async with opened() as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            for way in (commit, commit_behind, saying("COMMIT")):
                with pytest.raises(CommitRefused):
                    await way(work.session)
            await work.commit_alone()

        assert await emails(data) == ["jane@example.com"]


async def test_closing_the_session_does_not_lose_what_the_step_wrote() -> None:
    async with opened() as data:
        async with unit(data) as work:
            async with work.session as session:
                session.add(work.db["Lead"].model(email="jane@example.com"))
            await work.session.close()
            await work.session.aclose()
            await work.commit_alone()

        assert await emails(data) == ["jane@example.com"]


async def test_a_session_that_was_kept_past_its_step_is_of_no_use() -> None:
    async with opened() as data:
        async with unit(data) as work:
            kept = work.session
        with pytest.raises(Exception, match="permanently closed"):
            await kept.execute(text("DELETE FROM lead"))
