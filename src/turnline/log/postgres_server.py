"""The server of a `PostgresLog`: its address, connections to it, and what its commits mean.

Rule 1: who connects, and with which password, is known to the driver alone. No address, error or
`repr` of ours has it, nor what else stood in the query of the address.

Rule 2: every new connection asks what a commit on it survives. `power` is said only while the
server syncs (`fsync`), repairs torn pages (`full_page_writes`), waits for the sync before it
answers (`synchronous_commit`), and keeps the log's tables at all (they are not UNLOGGED).

Rule 3: one connection that is found lost condemns all that are idle: the server was probably
started again, and nobody else shall find out one by one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from turnline.errors import LogUnavailable
from turnline.log import postgres_schema as schema

CONNECT_SECONDS: Final = 10
ANSWER_SECONDS: Final = 30.0
"""How long an answer may take before its connection counts as lost."""
STATEMENT_SECONDS: Final = 20
"""How long the server tries; less, so that it is the one to say so."""

EXPECTED: Final = "postgresql://user:password@host:port/database"
_DEFAULTS: Final[dict[str, Any]] = {
    "connect_timeout": CONNECT_SECONDS,
    "application_name": "turnline",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_PREPARE: Final = f"""
SELECT set_config('default_transaction_isolation', 'read committed', false),
    set_config('statement_timeout', '{STATEMENT_SECONDS}s', false),
    set_config('client_min_messages', 'error', false)
"""
_SETTINGS: Final = """
SELECT pg_is_in_recovery(), current_setting('server_encoding'),
    current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'
        AND current_setting('synchronous_commit') <> 'off'
        AND NOT EXISTS (
            SELECT FROM pg_class WHERE oid = to_regclass('turnline_records') AND relpersistence <> 'p'
        )
"""
_USER: Final = re.compile(r'\b(user|role) "[^"]*"')
_HINTS: Final = (
    (re.compile("password|authentication"), "check the user and the password in the address"),
    (re.compile('database "[^"]*" does not exist'), "make it with `createdb`, or name another"),
    (re.compile('role "[^"]*" does not exist'), "make it with `createuser`, or name another user"),
    (
        re.compile("refused|No such file|resolve host|timeout expired"),
        "start the server, or correct the host and the port in the address",
    ),
)
"""What is found when connecting -> what to do about it. By its words: it has no code of the server's yet."""
_SECRETS: Final = ("password", "sslpassword", "oauth_client_secret")

Row = tuple[Any, ...]


class ConnectionLost(LogUnavailable):
    """A connection ended while it was used; what became of the statement is not known."""


class PostgresServer:
    """A database with a Turnline log in it, checked when it is made; gives connections to it."""

    def __init__(self, address: str, *, checked: Callable[[str], None]) -> None:
        self._connecting = _read(address)
        self._url = address
        self._secrets = [str(self._connecting[key]) for key in _SECRETS if self._connecting.get(key)]
        self.address = _public(self._connecting)
        self._checked = checked
        self._idle: list[AsyncConnection[Row]] = []
        self._closed = False
        self._make()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Row]]:
        """Give a connection to one caller, for statements that each commit by themselves.

        Raises `LogUnavailable` if there is none to be had, `ConnectionLost` if it was lost in use,
        and what the driver raises otherwise: then nothing of the statement was committed.
        """
        connection = self._idle.pop() if self._idle else await self.connect()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                yield connection
        except (psycopg.Error, TimeoutError) as error:
            if not _is_lost(connection, error):
                raise
            await connection.close()
            lost = ConnectionLost(self.address, because=self.reason(error))
        else:
            return
        finally:
            await self._take_back(connection)
        raise lost

    async def connect(self) -> AsyncConnection[Row]:
        """Return a new connection. Raises `LogUnavailable`."""
        if self._closed:
            raise LogUnavailable(self.address, because="it has been closed")
        try:
            return await self._connect()
        except (psycopg.Error, OSError) as error:
            because = self.reason(error)
        raise LogUnavailable(self.address, because=because)

    @property
    def url(self) -> str:
        """Who connects, and with which password, included: for whoever connects by himself."""
        return self._url

    async def close(self) -> None:
        self._closed = True
        await self._forget_idle()

    def unavailable(self, error: BaseException) -> LogUnavailable:
        return LogUnavailable(self.address, because=self.reason(error))

    def reason(self, error: BaseException) -> str:
        """Say what the server or the driver found, with the server's code for it, and without secrets."""
        if isinstance(error, LogUnavailable):
            return error.because
        if isinstance(error, TimeoutError):
            return f"it has not answered for {ANSWER_SECONDS:.0f} seconds"
        diag = getattr(error, "diag", None)
        found = (diag and diag.message_primary) or str(error).strip().partition("\n")[0]
        found = _USER.sub(r'\1 "***"', found)
        for secret in self._secrets:
            found = found.replace(secret, "***")
        state = getattr(error, "sqlstate", None)
        if state:
            return f"{found} ({state})"
        do = next((f"; {hint}" for words, hint in _HINTS if words.search(found)), "")
        return f"{found}{do}" if found else type(error).__name__

    async def _connect(self) -> AsyncConnection[Row]:
        connection = await AsyncConnection.connect(**self._connecting, autocommit=True)
        because = ""
        try:
            await connection.execute(_PREPARE)
            because = self._check(await (await connection.execute(_SETTINGS)).fetchone())
        except BaseException:
            await connection.close()
            raise
        if because:
            await connection.close()
            raise LogUnavailable(self.address, because=because)
        return connection

    async def _take_back(self, connection: AsyncConnection[Row]) -> None:
        if connection.closed:
            await self._forget_idle()
        elif self._closed or connection.info.transaction_status != TransactionStatus.IDLE:
            await connection.close()
        else:
            self._idle.append(connection)

    async def _forget_idle(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    def _make(self) -> None:
        """See that the tables are there. Blocks, as opening a file does."""
        try:
            with Connection.connect(**self._connecting, autocommit=True) as connection:
                connection.execute(_PREPARE)
                because = self._check(connection.execute(_SETTINGS).fetchone()) or schema.make(connection)
        except (psycopg.Error, OSError) as error:
            because = self.reason(error)
        if because:
            raise LogUnavailable(self.address, because=because)

    def _check(self, row: Row | None) -> str:
        """Take note of what a commit survives. Return why the server cannot be used; empty if it can."""
        is_standby, encoding, survives_power = row or (False, "", False)
        if is_standby:
            return "it is a standby, which takes no writes; name the primary"
        if encoding != "UTF8":
            return f"the database's encoding is {encoding}; expected UTF8"
        self._checked("power" if survives_power else "process")
        return ""


class ReadOnlyServer(PostgresServer):
    """The same for whoever only looks: it makes nothing, changes nothing, and may be a standby."""

    async def connect(self) -> AsyncConnection[Row]:
        connection = await super().connect()
        await connection.execute("SET default_transaction_read_only = on")
        return connection

    def _make(self) -> None:
        try:
            with Connection.connect(**self._connecting, autocommit=True) as connection:
                self._check(connection.execute(_SETTINGS).fetchone())
                because = self._refusal(connection)
        except (psycopg.Error, OSError) as error:
            because = self.reason(error)
        if because:
            raise LogUnavailable(self.address, because=because)

    def _refusal(self, connection: Connection[Row]) -> str:
        return schema.refusal(connection)

    def _check(self, row: Row | None) -> str:
        return super()._check((False, *row[1:]) if row else row)


def _is_lost(connection: AsyncConnection[Row], error: BaseException) -> bool:
    # The server's last words come before the end of the connection is seen.
    severity = error.diag.severity_nonlocalized if isinstance(error, psycopg.Error) else "FATAL"
    return connection.closed or severity in {"FATAL", "PANIC"}


def _read(address: str) -> dict[str, Any]:
    """Return what the driver is called with."""
    try:
        found = conninfo_to_dict(address)
    except psycopg.Error:
        found = None  # Its message quotes parts of the address, and a password may be one.
    if found is None or not _is_plain(found):
        raise LogUnavailable("postgresql:", because=f"the address cannot be read; expected {EXPECTED}")
    return {**_DEFAULTS, **found}


def _is_plain(found: dict[str, Any]) -> bool:
    """Whether no part of a password was taken for something else: its `@`, `:` and `/` have to be quoted."""
    shown = f"{found.get('host') or ''}{found.get('dbname') or ''}"
    return "@" not in shown and re.fullmatch(r"[0-9,]*", str(found.get("port") or "")) is not None


def _public(connecting: dict[str, Any]) -> str:
    host = connecting.get("host") or connecting.get("hostaddr") or "localhost"
    place = f"{host}:{connecting['port']}" if connecting.get("port") else host
    return f"postgresql://{place}/{connecting.get('dbname') or ''}"
