"""How a `PostgresLog`'s server is: what its commits wait for, its copies, its clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psycopg
from msgspec import Struct
from psycopg import Connection

from turnline.log import postgres_schema as schema
from turnline.log.checkup import Checkup, Finding, Watch, skew
from turnline.log.postgres_server import ReadOnlyServer, Row

_SETTINGS: Final = (
    "server_version",
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "synchronous_standby_names",
    "data_checksums",
    "max_connections",
)
_LOOK: Final = f"""
SELECT {", ".join(f"current_setting('{name}')" for name in _SETTINGS)}, pg_is_in_recovery(),
    (SELECT relpersistence <> 'p' FROM pg_class WHERE oid = to_regclass('turnline_records')),
    (SELECT count(*) FROM pg_stat_replication),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)
"""
"""Last of all the time, asked for by itself, so that it is not older than its answer."""
_COMMITS: Final = {
    "on": "was synced to the server's disk, and to that of each synchronous standby",
    "remote_apply": "was synced, and can be read on each synchronous standby",
    "remote_write": "was synced to the server's disk; a synchronous standby has it in memory",
    "local": "was synced to the server's disk; no standby is waited for",
    "off": "is in the server's memory only, for a moment",
}


class _Server(ReadOnlyServer):
    """One that may have no log in it yet."""

    has_tables = True
    refused = ""

    def _refusal(self, connection: Connection[Row]) -> str:
        self.has_tables = schema.has_tables(connection)
        self.refused = schema.refusal(connection) if self.has_tables else ""
        return ""


class _Found(Struct, frozen=True, kw_only=True):
    settings: dict[str, str]
    is_standby: bool
    is_unlogged: bool
    standbys: int
    synchronous: int
    connections: int
    may_make_tables: bool

    def is_off(self, name: str) -> bool:
        return self.settings[name] == "off"

    @property
    def is_synced(self) -> bool:
        return not (self.is_off("fsync") or self.is_off("synchronous_commit") or self.is_unlogged)


async def check_up_postgres(address: str, watch: Watch) -> Checkup:
    """Ask the server. Raises `LogUnavailable`."""
    server = _Server(address, checked=lambda durability: None)
    try:
        async with server.connection() as connection:
            row = await (await connection.execute(_LOOK.encode())).fetchone()
            begun = watch.seconds()
            there = await (await connection.execute("SELECT clock_timestamp()")).fetchone()
            took, here = watch.seconds() - begun, watch.now()
    except psycopg.Error as error:
        raise server.unavailable(error) from None
    finally:
        await server.close()
    found = _found(row or ())
    clock = skew(here, there[0]) if there else []
    return Checkup(
        address=server.address,
        facts={
            **_facts(found, took),
            "tables of the log": "there"
            if server.has_tables
            else "not there yet; whoever opens the log first makes them",
        },
        means=list(_means(found)),
        findings=[*_tables(server, found), *_findings(found), *clock],
    )


def _found(row: tuple[Any, ...]) -> _Found:
    settings, rest = row[: len(_SETTINGS)], row[len(_SETTINGS) :]
    is_standby, is_unlogged, standbys, synchronous, connections, may_make_tables = rest
    return _Found(
        settings=dict(zip(_SETTINGS, settings, strict=True)),
        is_standby=is_standby,
        is_unlogged=bool(is_unlogged),
        standbys=standbys,
        synchronous=synchronous,
        connections=connections,
        may_make_tables=may_make_tables,
    )


def _facts(found: _Found, took: float) -> dict[str, str]:
    settings = dict(found.settings)
    return {
        "PostgreSQL": settings.pop("server_version"),
        "role": "standby" if found.is_standby else "primary",
        **{name: value or "none" for name, value in settings.items()},
        "standbys connected": f"{found.standbys}, of which synchronous: {found.synchronous}",
        "connections now": str(found.connections),
        "one question and its answer": f"{took * 1000:.1f} ms",
    }


def _means(found: _Found) -> Iterator[str]:
    commit = _COMMITS.get(found.settings["synchronous_commit"], "is committed as the server is set up")
    if found.is_synced:
        yield f"An acknowledged append {commit}."
        yield "It survives a crash of the hub, of the server, and loss of the server's power."
    else:
        yield "An acknowledged append survives a crash of the hub; loss of the server's power may undo it."
    waited = found.synchronous and found.settings["synchronous_commit"] in {
        "on",
        "remote_apply",
        "remote_write",
    }
    if waited:
        yield "It survives loss of the server: a synchronous standby has it."
    elif found.standbys:
        yield "A standby follows, but is not waited for: with the server, the last appends may be lost."
    else:
        yield "No standby can be seen: loss of the server's disk loses the log. Keep backups."


def _tables(server: _Server, found: _Found) -> Iterator[Finding]:
    if server.refused:
        do = "Until then no hub of this program opens it."
        yield Finding("tables of the log", server.refused, f"format {schema.FORMAT} at most", do)
    elif not server.has_tables and not found.may_make_tables:
        do = "GRANT CREATE ON SCHEMA to this user, or let one who may open the log once."
        yield Finding("tables of the log", "none", "some, or a user who may make them", do)


def _findings(found: _Found) -> Iterator[Finding]:
    if found.is_standby:
        yield Finding("role", "a standby, which takes no writes", "the primary", "Name the primary's host.")
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        if found.is_off(name):
            how = f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"
            if name == "synchronous_commit":
                how += " Look at the role and the database as well: ALTER ROLE and ALTER DATABASE can set it."
            yield Finding(name, "off", "on", how)
    if found.is_unlogged:
        do = "ALTER TABLE turnline_records SET LOGGED;"
        yield Finding("turnline_records", "UNLOGGED: emptied by a crash of the server", "LOGGED", do)
    if found.settings["synchronous_standby_names"] and not found.synchronous and not found.is_standby:
        do = "Start the standby, or empty the setting: until then every append waits."
        yield Finding("synchronous_standby_names", "no such standby is connected", "one that is", do)
