"""The tables and functions of a `PostgresLog`: what is kept, and how it is made or refused.

    turnline_records    the log. (channel, seq) and (channel, envelope_id) are unique; the last
                        record of each append has its position
    turnline_heads      where each channel ends, and its row of the index (Y7); what appends queue up for
    turnline_tags       label or participant -> channels that have it: for lists
    turnline_snapshots  a cache with checksums of its own
    turnline_blobs      files of a tree of channels, by the id of its root (Y6), and
    turnline_chunks     their bytes
    turnline_tombstones what is left of pruned channels (Y3); `has_lines` while records of one are there
    turnline_append     compare-and-append, for many channels in one call
    turnline_prune      tombstones in the place of channels, all of them or none
    turnline_tail       the appends behind a position, as far as nothing can come between them

They are in the first schema of the connection's `search_path`.

Rule 1: a transaction begins and ends within one call, so none is ever open while a client thinks.
A client that is paused or dies holds up nobody. Only an append that joins a transaction of somebody
else is committed by another call (`postgres_joined`).

Rule 2: positions are given out in order and committed in any. So every append first takes a lock
that names a position below all it will be given (`turnline_enter`). What is at or below the lowest
of those names, and of what has been given out, is finished: no commit can come before it any more
(`turnline_horizon`). The locks are read after the last position, and the rows after the locks; for
that each statement needs a snapshot of its own, which is what READ COMMITTED gives. Transactions
that are not the log's hold up nothing, however long they take.

Rule 3: tables that are not a Turnline log's, or are of another format, are not touched.
"""

from __future__ import annotations

from typing import Any, Final

from psycopg import Connection
from psycopg.errors import InsufficientPrivilege

from turnline.log.listing import Dialect

TABLE_NAMES: Final = frozenset(
    {"turnline_format", "turnline_records", "turnline_heads", "turnline_tags", "turnline_snapshots"}
    | {"turnline_tombstones", "turnline_blobs", "turnline_chunks"}
)
DIALECT: Final = Dialect(prefix="turnline_", place="%s", channel="{}")
FORMAT: Final = 3
"""Of the tables and functions. Not the envelopes' schema version, which each of them carries."""
_CREATION_LOCK: Final = 0x5457_4C47  # "TWLG"

_TABLES: Final = r"""
CREATE TABLE turnline_format (number integer NOT NULL);
CREATE TABLE turnline_records (
    channel text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    envelope_id text COLLATE "C" NOT NULL,
    hash bytea NOT NULL,
    head bytea NOT NULL,
    payload bytea,
    position bigint,
    PRIMARY KEY (channel, seq),
    UNIQUE (channel, envelope_id)
);
CREATE UNIQUE INDEX turnline_appends ON turnline_records (position) WHERE position IS NOT NULL;
CREATE SEQUENCE turnline_positions CACHE 1;
CREATE TABLE turnline_heads (
    channel text COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL,
    hash bytea NOT NULL,
    closed boolean NOT NULL,
    position bigint NOT NULL,
    created bigint,
    type text COLLATE "C",
    flow text COLLATE "C",
    parent text COLLATE "C",
    origin text COLLATE "C",
    speaker text COLLATE "C",
    waiting text COLLATE "C",
    deadline bigint,
    code text COLLATE "C",
    row bytea
) WITH (fillfactor = 70);
CREATE TABLE turnline_tags (
    tag text COLLATE "C" NOT NULL,
    created bigint NOT NULL,
    channel text COLLATE "C" NOT NULL,
    PRIMARY KEY (tag, created, channel)
);
CREATE INDEX turnline_tags_channel ON turnline_tags (channel);
CREATE TABLE turnline_snapshots (
    channel text COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL,
    checksum bytea NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE turnline_blobs (
    blob bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    root text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    created bigint NOT NULL,
    user_key text COLLATE "C" NOT NULL,
    kept boolean NOT NULL
);
CREATE INDEX turnline_user_blobs ON turnline_blobs (user_key, size) WHERE user_key <> '';
CREATE UNIQUE INDEX turnline_blob_roots ON turnline_blobs (root, id);
CREATE INDEX turnline_new_blobs ON turnline_blobs (created) WHERE NOT kept;
CREATE TABLE turnline_chunks (
    blob bigint NOT NULL REFERENCES turnline_blobs ON DELETE CASCADE,
    number integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (blob, number)
);
ALTER TABLE turnline_chunks ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE turnline_tombstones (
    channel text COLLATE "C" PRIMARY KEY,
    position bigint NOT NULL UNIQUE,
    has_lines boolean NOT NULL,
    body bytea NOT NULL
);
CREATE INDEX turnline_undeleted ON turnline_tombstones (channel) WHERE has_lines;
"""

_FUNCTIONS: Final = r"""
CREATE FUNCTION turnline_enter() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'a log needs READ COMMITTED';
    END IF;
    -- The argument is known before the lock is taken, and the lock before any position is asked for.
    PERFORM pg_advisory_xact_lock_shared(
        'turnline_positions'::regclass::oid::integer,
        (coalesce(pg_sequence_last_value('turnline_positions'), 0) & 2147483647)::integer
    );
END $$;

CREATE FUNCTION turnline_horizon() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    given bigint := coalesce(pg_sequence_last_value('turnline_positions'), 0);
    behind bigint;
BEGIN
    -- A lock has 31 bits of its position. A difference that looks too large to be one belongs to a
    -- lock taken after `given` was read: its positions are higher.
    SELECT max((given - lock.objid::bigint) & 2147483647) INTO behind
    FROM pg_locks AS lock
    WHERE lock.locktype = 'advisory' AND lock.objsubid = 2
        AND lock.classid = 'turnline_positions'::regclass::oid
        AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (given - lock.objid::bigint) & 2147483647 < 1073741824;
    RETURN given - coalesce(behind, 0);
END $$;

CREATE FUNCTION turnline_tail(behind bigint, at_most integer)
RETURNS TABLE (told_channel text, told_seq bigint, told_closed boolean, told_position bigint)
LANGUAGE plpgsql AS $$
DECLARE
    horizon bigint;
BEGIN
    IF behind >= coalesce(pg_sequence_last_value('turnline_positions'), 0) THEN
        RETURN;
    END IF;
    horizon := turnline_horizon();
    RETURN QUERY
        (SELECT append.channel, append.seq, head.closed AND head.seq = append.seq, append.position
        FROM turnline_records AS append JOIN turnline_heads AS head ON head.channel = append.channel
        WHERE append.position > behind AND append.position <= horizon
        ORDER BY append.position LIMIT at_most)
        UNION ALL
        (SELECT one.channel, 0::bigint, true, one.position FROM turnline_tombstones AS one
        WHERE one.position > behind AND one.position <= horizon
        ORDER BY one.position LIMIT at_most)
        ORDER BY 4 LIMIT at_most;
END $$;

-- Of each append, `numbers`: the seq before it, its lines, its tags, whether it closes its channel (1, 0,
-- or NULL if it only sets the row), `created` and `deadline`; `texts`: its channel and the columns of its
-- row that are text; `bodies`: the hash before it, its row. Of each line, `lines`: hash, head, payload.
-- Each array and each expression costs every call, so there are few.
CREATE FUNCTION turnline_append(
    numbers bigint[], texts text[], bodies bytea[], ids text[], lines bytea[], tags text[]
) RETURNS TABLE (outcome text, found_seq bigint, found_hash bytea, found_id text)
LANGUAGE plpgsql AS $$
DECLARE
    low integer := 1;
    high integer;
    tag_low integer := 1;
    own_channel text;
    own_after bigint;
    is_new boolean;
    had_row boolean;
    place bigint;
BEGIN
    PERFORM turnline_enter();
    FOR i IN 1 .. coalesce(array_length(numbers, 1), 0) LOOP
        own_channel := texts[i][1];
        own_after := numbers[i][1];
        high := low + numbers[i][2] - 1;
        found_id := NULL;
        SELECT head.seq, head.hash, head.created IS NOT NULL INTO found_seq, found_hash, had_row
        FROM turnline_heads AS head WHERE head.channel = own_channel FOR UPDATE;
        is_new := NOT FOUND;
        IF is_new THEN
            found_seq := 0;
            found_hash := decode(repeat('00', 32), 'hex');
            IF own_after = 0 THEN
                -- Whoever begins a channel holds its head before the records are looked at, too.
                INSERT INTO turnline_heads VALUES (own_channel, 0, found_hash, false, 0)
                ON CONFLICT DO NOTHING;
                is_new := FOUND;
                SELECT head.seq, head.hash, head.created IS NOT NULL INTO found_seq, found_hash, had_row
                FROM turnline_heads AS head WHERE head.channel = own_channel FOR UPDATE;
            END IF;
        END IF;
        IF is_new THEN
            -- A fork holds the channel that it reads, so that it is not pruned meanwhile.
            PERFORM FROM turnline_heads AS head WHERE head.channel = texts[i][5] FOR KEY SHARE;
            SELECT one.channel INTO found_id FROM turnline_tombstones AS one
            WHERE one.channel IN (own_channel, texts[i][5]) LIMIT 1;
        END IF;
        IF found_id IS NOT NULL THEN
            outcome := 'pruned';
        ELSIF found_seq <> own_after THEN
            outcome := 'conflict';
        ELSIF found_seq > 0 AND NOT EXISTS (
            SELECT FROM turnline_records AS record
            WHERE record.channel = own_channel AND record.seq = found_seq AND record.hash = found_hash
        ) THEN
            outcome := 'head without record';
        ELSIF numbers[i][4] IS NULL AND EXISTS (
            SELECT FROM turnline_records AS record
            WHERE record.channel = own_channel AND record.seq = found_seq + 1
        ) THEN
            outcome := 'record without head';
        ELSIF numbers[i][4] IS NULL THEN
            outcome := 'row';
        ELSIF found_hash <> bodies[i][1] OR numbers[i][2] = 0 THEN
            outcome := 'other hash';
        ELSE
            outcome := 'written';
            place := nextval('turnline_positions');
            -- One by one: `INSERT .. SELECT` takes 50 us longer. The keys of the table find duplicates.
            FOR n IN low .. high LOOP
                INSERT INTO turnline_records VALUES (
                    own_channel, own_after + n - low + 1, ids[n], lines[n][1], lines[n][2], lines[n][3],
                    CASE WHEN n = high THEN place END
                ) ON CONFLICT DO NOTHING;
                IF NOT FOUND THEN
                    DELETE FROM turnline_records AS record WHERE record.channel = own_channel
                        AND record.seq > own_after AND record.seq <= own_after + n - low;
                    SELECT record.envelope_id INTO found_id FROM turnline_records AS record
                    WHERE record.channel = own_channel AND record.envelope_id = ids[n];
                    outcome := CASE WHEN FOUND THEN 'duplicate' ELSE 'record without head' END;
                    EXIT;
                END IF;
            END LOOP;
        END IF;
        IF outcome = 'row' AND found_seq > 0 THEN
            UPDATE turnline_heads AS head
            SET created = numbers[i][5], type = texts[i][2], flow = texts[i][3], parent = texts[i][4],
                origin = texts[i][5], speaker = texts[i][6], waiting = texts[i][7],
                deadline = numbers[i][6], code = texts[i][8], row = bodies[i][2]
            WHERE head.channel = own_channel;
        ELSIF outcome = 'written' THEN
            UPDATE turnline_heads AS head
            SET seq = own_after + numbers[i][2], hash = lines[high][1], closed = numbers[i][4] = 1,
                position = place, created = numbers[i][5], type = texts[i][2], flow = texts[i][3],
                parent = texts[i][4], origin = texts[i][5], speaker = texts[i][6], waiting = texts[i][7],
                deadline = numbers[i][6], code = texts[i][8], row = bodies[i][2]
            WHERE head.channel = own_channel;
        END IF;
        IF is_new AND outcome <> 'written' THEN
            DELETE FROM turnline_heads AS head WHERE head.channel = own_channel AND head.seq = 0;
        ELSIF (outcome = 'row' OR outcome = 'written' AND NOT had_row) AND numbers[i][5] IS NOT NULL THEN
            -- Tags never change: they are written with the first row, and with a row alone.
            DELETE FROM turnline_tags AS one WHERE one.channel = own_channel;
            INSERT INTO turnline_tags
            SELECT DISTINCT one, numbers[i][5], own_channel
            FROM unnest(tags[tag_low:tag_low + numbers[i][3] - 1]) AS one;
        END IF;
        tag_low := tag_low + numbers[i][3];
        low := high + 1;
        RETURN NEXT;
    END LOOP;
END $$;

CREATE FUNCTION turnline_prune(
    channels text[], seqs bigint[], hashes bytea[], origin_keys text[], bodies bytea[]
) RETURNS TABLE (bad_channel text, wanted_seq bigint, found_seq bigint, found_fork text)
LANGUAGE plpgsql AS $$
DECLARE
    head turnline_heads%ROWTYPE;
BEGIN
    PERFORM turnline_enter();
    FOR i IN 1 .. cardinality(channels) LOOP
        -- A channel that is not here is held as well, so that nobody begins it meanwhile.
        INSERT INTO turnline_heads VALUES (channels[i], 0, '', true, 0) ON CONFLICT DO NOTHING;
        SELECT * INTO head FROM turnline_heads AS one WHERE one.channel = channels[i] FOR UPDATE;
        SELECT fork.channel INTO found_fork FROM turnline_heads AS fork
        WHERE fork.origin <> '' AND fork.origin = origin_keys[i] AND fork.channel <> ALL (channels) LIMIT 1;
        IF head.seq > 0 AND (found_fork IS NOT NULL OR NOT head.closed
                OR head.seq <> seqs[i] OR head.hash <> hashes[i]) THEN
            bad_channel := channels[i];
            wanted_seq := seqs[i];
            found_seq := head.seq;
            RETURN NEXT;
        END IF;
    END LOOP;
    IF bad_channel IS NULL THEN
        INSERT INTO turnline_tombstones
        SELECT one.channel, nextval('turnline_positions'), head_of.seq > 0, one.body
        FROM unnest(channels, bodies) AS one (channel, body)
        JOIN turnline_heads AS head_of ON head_of.channel = one.channel
        ON CONFLICT (channel) DO NOTHING;
        DELETE FROM turnline_heads AS one WHERE one.channel = ANY (channels);
        DELETE FROM turnline_tags AS one WHERE one.channel = ANY (channels);
        DELETE FROM turnline_snapshots AS one WHERE one.channel = ANY (channels);
    ELSE
        DELETE FROM turnline_heads AS one WHERE one.channel = ANY (channels) AND one.seq = 0;
    END IF;
END $$;
"""

APPEND: Final = """
SELECT outcome, found_seq, found_hash, found_id FROM turnline_append(
    %b::bigint[], %b::text[], %b::bytea[], %b::text[], %b::bytea[], %b::text[]
)
"""


def make(connection: Connection[Any]) -> str:
    """Make what is not there. Return why it cannot be used; empty if it can."""
    if _format(connection):
        return refusal(connection)
    try:
        with connection.transaction():
            return _create(connection)
    except InsufficientPrivilege:
        return (
            "it has no tables of a log, and this user may not make them; GRANT CREATE ON SCHEMA to it, or "
            "let one who may open the log once"
        )


def has_tables(connection: Connection[Any]) -> bool:
    """Whether there is a log, of whatever format."""
    return _format(connection) > 0


def refusal(connection: Connection[Any]) -> str:
    """Say why the tables there cannot be read; empty if they can."""
    found = _format(connection)
    if not found:
        return "it has no tables of a Turnline log"
    if found != FORMAT:
        return (
            f"its format is {found}, this program reads {FORMAT}; use the version of turnline that wrote it"
        )
    return ""


def _create(connection: Connection[Any]) -> str:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION_LOCK,))
    if _format(connection):  # Somebody else was first.
        return ""
    if _exists(connection, "turnline_records"):
        return "it has a table `turnline_records`, but is not a Turnline log"
    if not _value(connection, "SELECT current_schema() IS NOT NULL"):
        return "its search_path names no schema to make tables in"
    connection.execute(_TABLES)
    connection.execute(DIALECT.indexes.encode())
    connection.execute(_FUNCTIONS)
    connection.execute("INSERT INTO turnline_format VALUES (%s)", (FORMAT,))
    return ""


def _format(connection: Connection[Any]) -> int:
    if not _exists(connection, "turnline_format"):
        return 0
    return int(_value(connection, "SELECT max(number) FROM turnline_format") or 0)


def _exists(connection: Connection[Any], name: str) -> bool:
    # Not `to_regclass`, which remembers what it did not find until the transaction ends.
    query = f"SELECT count(*) FROM pg_class WHERE relname = '{name}' AND pg_table_is_visible(oid)"
    return bool(_value(connection, query))


def _value(connection: Connection[Any], query: str) -> Any:
    row = connection.execute(query).fetchone()
    return None if row is None else row[0]
