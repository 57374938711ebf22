"""`turnline log verify --seal`, `seal` and `repair`: what is printed, and the exit codes."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from turnline.errors import BadKey, MissingExtra
from turnline.log.sqlite import SqliteLog
from turnline.testing import damage_sqlite
from turnline.testing.blob_contract import file_data, write
from turnline.testing.lines import line

from ..log.test_verify import spoken
from .projects import call


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    asyncio.run(fill(path, "abc"))
    return path


async def fill(path: Path, names: str) -> None:
    log = SqliteLog(path, durability="process")
    for name in names:
        await log.append(name, spoken(name, 3), after=0)
    await log.append("_audit", [line("_audit", 1), line("_audit", 2)], after=0)
    await log.close()


def forget(path: Path, name: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        number = f"(SELECT channel FROM turnline_names WHERE id = '{name}')"
        for table in ("records", "heads", "names"):
            connection.execute(f"DELETE FROM turnline_{table} WHERE channel = {number}")


def test_y6_verify_names_the_line_and_the_file_that_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "files.db"
    asyncio.run(send_files(path))
    good = call("log", "verify", str(path))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM turnline_chunks WHERE blob = 2")

    bad, as_json = call("log", "verify", str(path)), call("log", "verify", str(path), "--json")

    assert (good.code, bad.code, as_json.code) == (0, 1, 1)
    assert "1 channel, 4 records, 2 files" in good.out
    assert "channel 'a', seq 4, file 1: found chunk 0 of a file is missing or damaged; expected" in bad.out
    assert "0 bad channels, 1 bad file. Restore them from a backup." in bad.out
    assert "`turnline log repair ADDRESS` says what it can save." in bad.out
    assert [(one["seq"], one["file"]) for one in json.loads(as_json.out)["bad_files"]] == [(4, 1)]


def test_a_repair_brings_a_damaged_file_back_from_an_archive_and_else_exits_with_1(tmp_path: Path) -> None:
    path, archive = tmp_path / "files.db", tmp_path / "backup.jsonl"
    asyncio.run(send_files(path))
    call("log", "export", str(path), "-o", str(archive))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE turnline_chunks SET data = x'00' WHERE blob = 2")

    left = call("log", "repair", str(path), "--yes")
    planned = call("log", "repair", str(path), "--archive", str(archive))
    healed = call("log", "repair", str(path), "--archive", str(archive), "--yes")

    assert (left.code, planned.code, healed.code) == (1, 1, 0)
    assert "channel 'a', seq 4, file 1 stays damaged" in left.out
    assert "channel 'a', seq 4, file 1 is written as the archive has it" in healed.out
    assert call("log", "verify", str(path)).code == 0


async def send_files(path: Path) -> None:
    log = SqliteLog(path, durability="process")
    for number, content in enumerate((b"one", b"two")):
        await write(log, "a", content, blob_id=f"b{number}")
    await log.append("a", [*spoken("a", 3), line("a", 4, data=file_data(b"one", b"two"))], after=0)
    await log.close()


def test_a_seal_is_one_line_that_verify_takes(log: Path) -> None:
    sealed = call("log", "seal", str(log))
    good = call("log", "verify", str(log), "--seal", sealed.out.strip())
    forget(log, "b")
    bad = call("log", "verify", str(log), "--seal", sealed.out.strip())

    assert sealed.out.startswith("turnline-seal:1:")
    assert sealed.out.count("\n") == 1
    assert good.code == 0
    assert "(1 seal on the log)" in good.out
    assert bad.code == 1
    assert "channel 'b', seq 1: found the channel is gone; expected 3 lines" in bad.out


def test_a_seal_in_a_file_names_channels_of_a_log_that_lost_its_seals(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "seal.txt"
    call("log", "seal", str(log), "--out", str(file))
    for name in ("a", "_seals"):
        forget(log, name)

    done = call("log", "verify", str(log), "--seal", str(file), "--json")

    assert [bad["channel_id"] for bad in json.loads(done.out)["bad"]] == ["_seals", "a"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_seal_is_signed_with_a_key_of_openssl(log: Path, tmp_path: Path) -> None:
    private, public = tmp_path / "seal.pem", tmp_path / "public.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(private)], check=True)
    subprocess.run(["openssl", "pkey", "-in", str(private), "-pubout", "-out", str(public)], check=True)

    call("log", "seal", str(log))
    unsigned = call("log", "verify", str(log), "--public-key", str(public))
    call("log", "seal", str(log), "--sign", str(private))
    signed = call("log", "verify", str(log), "--public-key", str(public))

    assert (unsigned.code, "no seal that this key has signed" in unsigned.out) == (1, True)
    assert signed.code == 0


@pytest.mark.parametrize("option", ["--sign", "--public-key"])
def test_a_file_that_is_not_a_key_is_refused_and_not_quoted(log: Path, tmp_path: Path, option: str) -> None:
    (tmp_path / "key").write_text("hunter2")
    verb = "seal" if option == "--sign" else "verify"

    with pytest.raises(BadKey) as refused:
        call("log", verb, str(log), option, str(tmp_path / "key"))

    assert "hunter2" not in str(refused.value)
    assert "openssl genpkey -algorithm ed25519" in str(refused.value)


def test_without_cryptography_the_error_names_the_extra(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "turnline.log.seal_keys", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)

    done = call("log", "seal", str(log), "--sign", str(tmp_path / "key"))

    assert done.code == 2
    assert "[seals]" in done.err
    assert "seals" in str(MissingExtra("signed seals", extra="seals"))


@pytest.mark.parametrize("seal", ["turnline-seal:1:abc", "nothing.txt"])
def test_a_seal_that_is_none_is_a_bad_parameter(log: Path, seal: str) -> None:
    done = call("log", "verify", str(log), "--seal", seal)

    assert (done.code, "--seal" in done.err) == (2, True)


def test_sealing_does_not_make_a_log(tmp_path: Path) -> None:
    done = call("log", "seal", str(tmp_path / "none.db"))

    assert (done.code, "there is no such file" in done.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_repair_says_what_it_does_and_does_it_with_yes(log: Path) -> None:
    damage_sqlite(log, "_audit", 1)

    planned = call("log", "repair", str(log))
    before = call("log", "verify", str(log))
    done = call("log", "repair", str(log), "--yes")
    after = call("log", "verify", str(log))

    assert (planned.code, before.code, done.code, after.code) == (1, 1, 0, 0)
    assert "turnline log repair ADDRESS" in before.out
    assert "Nothing was written" in planned.err
    assert planned.out == done.out
    assert "_audit: line 1: its checksum does not match its bytes" in done.out
    assert "1 line kept, 0 from the archive, line 1 lost" in done.out


def test_an_archive_gives_back_what_was_lost(log: Path, tmp_path: Path) -> None:
    archive = tmp_path / "backup.jsonl"
    call("log", "export", str(log), "-o", str(archive))
    damage_sqlite(log, "_audit", 1)

    done = call("log", "repair", str(log), "--archive", str(archive), "--yes")

    assert "1 line kept, 1 from the archive, none lost" in done.out
    assert call("log", "verify", str(log)).code == 0


def test_a_damaged_conversation_is_named_and_stays(log: Path, tmp_path: Path) -> None:
    archive = tmp_path / "backup.jsonl"
    call("log", "export", str(log), "-o", str(archive))
    damage_sqlite(log, "a", 2)
    before = log.read_bytes()

    left = call("log", "repair", str(log), "--yes")
    after = log.read_bytes()
    healed = call("log", "repair", str(log), "--archive", str(archive), "--yes")

    assert "channel 'a' stays damaged from line 2 on" in left.out
    assert "A hub refuses these channels and serves all others" in left.out
    assert (left.code, before) == (1, after)
    assert "from the archive, none lost" in healed.out
    assert call("log", "verify", str(log)).code == 0
