"""PostgreSQL for data models: a pool of connections, each with one step's transaction at a time.

Rule 1: who connects, and with which password, is known to the pool alone. No address, error or
`repr` of ours has it, nor what else stood in the query of the address.

Rule 2: a connection that is lost, and whatever else passes by itself, is a `DataUnavailable`: nothing
is wrong with the step, and it is tried again.

Where the log is in the same database (`with_log`), it appends a step's packet on the step's own
connection (`PostgresHold.commit`), and both land with one COMMIT. A log that is kept elsewhere has the
packet just after the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Final, TypeVar

import msgspec
from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import PoolResetState

from turnline.errors import CommitRefused, DataUnavailable, MissingExtra
from turnline.flow.data import postgres_errors
from turnline.flow.data.hold import OPTION, READS
from turnline.flow.data.postgres_hold import PostgresHold
from turnline.hub.timers import Clock
from turnline.log.joined import SharedDatabase

SCHEMES: Final = ("postgresql", "postgres", "postgresql+psycopg")
_LIBPQ_SCHEMES: Final = ("postgresql://", "postgres://")
CONNECTIONS: Final = 16
"""At a time, in this process. A step has one from its first staged write on, or while it reads."""
KEPT_CONNECTIONS: Final = 4
WAIT_SECONDS: Final = 30.0
"""How long a step waits for one."""
LOCK_SECONDS: Final = 10
"""How long a statement waits for a row or a table that somebody else has changed."""
_CONNECTING: Final = {
    "connect_timeout": 10,
    # A server that is gone without a word is noticed in about a minute, not in hours.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_SECRETS: Final = ("password", "sslpassword", "oauth_client_secret")
_PREPARE: Final = (
    f"SELECT set_config('TimeZone', 'UTC', false), set_config('lock_timeout', '{LOCK_SECONDS}s', false)"
)
_MIGRATION_LOCK: Final = 0x7457_6473
"""Of whoever changes tables: the advisory lock that keeps others from doing so at the same time."""

_WRITTEN_WITH_EXPONENT: Final = 1e16
_encoder: Final = msgspec.json.Encoder(decimal_format="number")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresHome:
    """See `turnline.flow.data.home.Home`."""

    begin_reading: ClassVar[str] = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
    begin_writing: ClassVar[str] = f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"

    address: str
    connecting: Mapping[str, Any] = field(repr=False)
    """What the driver is called with."""
    shares_log: bool = False
    reserved: frozenset[str] = frozenset()
    prepare: tuple[str, ...] = ()
    """The statements every connection begins with, for the log's sake."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        from psycopg import Error  # noqa: PLC0415  a project on SQLite does without it.

        return (Error,)

    def open_engine(self) -> AsyncEngine:
        engine = create_async_engine(
            URL.create("postgresql+psycopg"),
            hide_parameters=True,  # They are the user's data, and errors are shown.
            pool_size=KEPT_CONNECTIONS,
            max_overflow=CONNECTIONS - KEPT_CONNECTIONS,
            pool_timeout=WAIT_SECONDS,
            pool_pre_ping=True,  # One that was lost while nobody used it is nobody's error.
            connect_args={"cursor_factory": _cursor()},
            json_serializer=_dumped,
        )

        def connect(_: object, __: object, ___: object, parameters: dict[str, Any]) -> None:
            parameters.update(self.connecting)

        event.listen(engine.sync_engine, "do_connect", connect)

        def connected(connection: Any, _: object) -> None:
            for statement in (*self.prepare, _PREPARE):
                connection.cursor().execute(statement)
            connection.commit()

        event.listen(engine.sync_engine, "connect", connected)
        event.listen(engine.sync_engine, "reset", _given_back)
        event.listen(engine.sync_engine, "before_cursor_execute", _before_statement)
        event.listen(engine.sync_engine, "commit", _before_commit)
        event.listen(engine.sync_engine, "handle_error", self._told)
        return engine

    def new_hold(self, clock: Clock) -> PostgresHold:
        return PostgresHold()

    async def changed_alone(self, engine: AsyncEngine, change: Callable[[Connection], T]) -> T:
        async with engine.begin() as connection:
            await connection.exec_driver_sql(self.begin_writing)
            return await connection.run_sync(change)

    def reason(self, error: BaseException) -> str:
        found = postgres_errors.reason(error)
        for secret in filter(None, map(self.connecting.get, _SECRETS)):
            found = found.replace(str(secret), "***")
        return found

    def refusal(self, error: BaseException) -> str | None:
        return postgres_errors.refusal(error)

    def _told(self, context: ExceptionContext) -> BaseException | None:
        """Tell what SQLAlchemy is about to raise, where it passes by itself, as `DataUnavailable`."""
        error, connection = context.original_exception, context.connection
        if context.is_pre_ping or not isinstance(error, self.errors):
            return None
        error.args = (self.reason(error),)
        if not (connection is None or context.is_disconnect or postgres_errors.is_passing(error)):
            return None
        hold = connection.get_execution_options().get(OPTION) if connection is not None else None
        if context.is_disconnect and isinstance(hold, PostgresHold) and hold.begun:
            hold.lost = str(error)
        return DataUnavailable(self.address, because=str(error))


def read_url(url: str) -> PostgresHome | None:
    """Return the database at `url`; None if it is not one of PostgreSQL's."""
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES:
        return None
    try:
        found = make_url(url).set(drivername="postgresql+psycopg")
        _, connecting = found.get_dialect()().create_connect_args(found)
    except (ArgumentError, ValueError):  # The second for a port that is no number.
        return None
    host = connecting.get("host") or "localhost"
    if "@" in host:  # The rest of a password: its own `@` has to be written as %40.
        return None
    place = f"{host}:{found.port}" if found.port else host
    return PostgresHome(
        address=f"postgresql://{place}/{found.database or ''}", connecting={**_CONNECTING, **connecting}
    )


def with_log(shared: SharedDatabase, url: str) -> PostgresHome | None:
    """Return the log's own database, if that is where `url` leads; None if it is not."""
    if not shared.url.startswith(_LIBPQ_SCHEMES) or _without_driver(url) != _without_driver(shared.url):
        return None
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415  the log has loaded it already.

    # Read as the log reads it: a list of hosts, say, SQLAlchemy writes in another way.
    found = conninfo_to_dict(shared.url)
    host = found.get("host") or "localhost"
    place = f"{host}:{found['port']}" if found.get("port") else host
    return PostgresHome(
        address=f"postgresql://{place}/{found.get('dbname') or ''}",
        connecting={**_CONNECTING, **found},
        shares_log=True,
        reserved=shared.tables,
        prepare=shared.prepare,
    )


def _without_driver(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    return f"postgresql{mark}{rest}" if scheme in SCHEMES else url


def _dumped(value: object) -> str:
    return _encoder.encode(_spelled_out(value)).decode()


def _spelled_out(value: object) -> object:
    """Large floats without an exponent and with a point: the server would make integers of them."""
    match value:
        case dict():
            return {key: _spelled_out(one) for key, one in value.items()}
        case list():
            return [_spelled_out(one) for one in value]
        case float() if abs(value) >= _WRITTEN_WITH_EXPONENT:
            return Decimal(f"{Decimal(repr(value)):f}.0")
        case _:
            return value


def _cursor() -> type[Any]:
    try:
        from turnline.flow.data.one_statement import OneStatementCursor  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("data models on PostgreSQL", extra="postgres") from None
    return OneStatementCursor


def _given_back(connection: Any, _: object, state: PoolResetState) -> None:
    """Undo what is left open. SQLAlchemy takes a transaction whose commit was refused for ended."""
    if state.asyncio_safe:
        connection.rollback()


def _before_statement(
    connection: Connection, _: object, statement: str, __: object, context: Any, ___: object
) -> None:
    hold = connection.get_execution_options().get(OPTION)
    if isinstance(hold, PostgresHold):
        reads = context is not None and bool(context.execution_options.get(READS))
        hold.before(connection, statement, reads=reads)


def _before_commit(connection: Connection) -> None:
    if OPTION in connection.get_execution_options():
        raise CommitRefused("a step's connection was to be committed")
