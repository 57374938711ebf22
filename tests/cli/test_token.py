"""`turnline token`: make, narrow, look at and revoke tokens."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from turnline.cli.token import app
from turnline.errors import BadKey, BadToken, LogUnavailable
from turnline.hub.timers import SystemClock, sortable_ids
from turnline.log.sqlite import SqliteLog
from turnline.server.auth.keys import root_key
from turnline.server.auth.reading import read
from turnline.server.auth.revocation import REVOCATIONS_CHANNEL, Revocations

root = typer.Typer(pretty_exceptions_enable=False)
root.add_typer(app, name="token")


@pytest.fixture(autouse=True)
def _no_keys_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TURNLINE_AUTH_KEY", "TURNLINE_AUTH_PUBLIC_KEY"):
        monkeypatch.delenv(name, raising=False)


def token(*arguments: object, stdin: str = "") -> Result:
    return CliRunner().invoke(root, ["token", *map(str, arguments)], input=stdin)


def printed(*arguments: object, stdin: str = "") -> str:
    """What a verb that succeeds prints to standard output."""
    done = token(*arguments, stdin=stdin)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout.strip()


def minted(folder: Path, *arguments: object) -> str:
    return printed("mint", "--user", "alice", "--expires", "1h", "--dir", folder, *arguments)


def test_a_minted_token_is_good_and_goes_alone_to_standard_output(tmp_path: Path) -> None:
    text = minted(tmp_path, "--group", "ops", "--scope", "runs:start:*", "--scope", "runs:read")
    public_key = root_key({}, tmp_path).public
    grant = read(text, public_key=public_key, now=SystemClock().now()).grant

    assert (grant.user_id, grant.groups, grant.scopes) == ("alice", ("ops",), ("runs:start:*", "runs:read"))


def test_the_first_token_makes_the_projects_key_and_shows_nothing_of_it(tmp_path: Path) -> None:
    done = token("mint", "--user", "alice", "--expires", "1h", "--dir", tmp_path)
    file = tmp_path / ".turnline" / "auth.key"

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().strip() not in done.output
    assert file.read_text().strip() not in token("key", "--dir", tmp_path).output
    assert file.read_text().strip() not in token("key", "--dir", tmp_path, "--json").output


def test_key_shows_the_public_half_and_where_the_other_one_is(tmp_path: Path) -> None:
    public_key = printed("key", "--dir", tmp_path)
    told = json.loads(printed("key", "--dir", tmp_path, "--json"))

    assert public_key == f"TURNLINE_AUTH_PUBLIC_KEY={root_key({}, tmp_path).public}"
    assert told["public_key"] == root_key({}, tmp_path).public
    assert told["private_key_in"] == str(tmp_path / ".turnline" / "auth.key")


def test_the_public_key_that_is_printed_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = minted(tmp_path)
    name, _, value = printed("key", "--dir", tmp_path).partition("=")
    monkeypatch.setenv(name, value)

    seen = json.loads(printed("inspect", text, "--json", "--dir", tmp_path / "elsewhere"))
    assert (seen["signature"], seen["accepted"]) == ("valid", True)


def test_a_narrowed_token_says_to_what(tmp_path: Path) -> None:
    narrow = printed(
        "attenuate", "-", "--expires", "5m", "--operation", "runs.start", "--resource", "leads",
        "--dir", tmp_path, stdin=minted(tmp_path) + "\n",
    )  # fmt: skip
    seen = json.loads(printed("inspect", narrow, "--json", "--dir", tmp_path))

    assert seen["checks"] == [
        {"kind": "operation", "allowed": ["runs.start"]},
        {"kind": "resource", "allowed": ["leads"]},
    ]
    assert len(seen["revocation_ids"]) == 2


def test_inspect_shows_facts_checks_expiry_ids_and_the_signature(tmp_path: Path) -> None:
    text = minted(tmp_path, "--group", "ops", "--scope", "runs:read")
    shown = printed("inspect", "-", "--dir", tmp_path, stdin=text)
    seen = json.loads(printed("inspect", text, "--json", "--dir", tmp_path))

    for expected in (
        "alice",
        "ops",
        "runs:read",
        "signature   valid",
        "accepted    yes",
        "check if time($time)",
    ):
        assert expected in shown
    assert seen["expires_at"] in shown
    assert seen["revocation_ids"][0] in shown


def test_inspect_of_a_forged_token_says_so_and_fails(tmp_path: Path) -> None:
    minted(tmp_path / "mine")
    done = token("inspect", minted(tmp_path / "theirs"), "--dir", tmp_path / "mine")

    assert done.exit_code == 1
    assert "signature   not valid" in done.stdout
    assert "accepted    no: " in done.stdout


def test_inspect_without_a_key_does_not_check_the_signature(tmp_path: Path) -> None:
    seen = json.loads(printed("inspect", minted(tmp_path / "theirs"), "--json", "--dir", tmp_path))

    assert seen["signature"] == "not checked"


def test_inspect_shows_a_terminal_nothing_it_would_obey(tmp_path: Path) -> None:
    """Anybody may append a block with anything in it."""
    from turnline.server.auth.library import Biscuit, BlockBuilder, PublicKey

    text = minted(tmp_path)
    key = PublicKey(f"ed25519/{root_key({}, tmp_path).public}")
    hostile = Biscuit.from_base64(text, key).append(BlockBuilder("f({x})", {"x": "\x1b[2J\r"}))
    done = token("inspect", hostile.to_base64(), "--dir", tmp_path)

    assert done.exit_code == 1
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout


async def revoked(path: Path, revocation_id: str) -> bool:
    log, clock = SqliteLog(path), SystemClock()
    try:
        return await Revocations(log, clock, sortable_ids(clock)).is_revoked([revocation_id])
    finally:
        await log.close()


async def made_log(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    log = SqliteLog(path)
    assert [line async for line in log.read(REVOCATIONS_CHANNEL)] == []
    await log.close()


def ids(folder: Path, text: str) -> list[str]:
    found: list[str] = json.loads(printed("inspect", text, "--json", "--dir", folder))["revocation_ids"]
    return found


class TestRevoke:
    """On the log that the project's servers read, by a process of its own."""

    @staticmethod
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        code = "from turnline.cli.token import app; app(prog_name='turnline token')"
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    async def test_the_token_is_revoked_on_the_projects_log_and_the_one_it_was_made_from_is_not(
        self, tmp_path: Path
    ) -> None:
        parent = minted(tmp_path)
        child = printed("attenuate", parent, "--expires", "5m", "--dir", tmp_path)
        log = tmp_path / ".turnline" / "log.db"
        await made_log(log)
        done = self.run("revoke", child, "--dir", tmp_path, "--reason", "lost", "--by", "root", "--json")

        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["revoked"] == ids(tmp_path, child)[1]
        assert await revoked(log, ids(tmp_path, child)[1])
        assert not await revoked(log, ids(tmp_path, parent)[0])

    async def test_an_id_that_inspect_shows_is_enough_and_the_log_may_be_elsewhere(
        self, tmp_path: Path
    ) -> None:
        revocation_id = ids(tmp_path, minted(tmp_path))[0]
        done = self.run("revoke", revocation_id, "--log", f"sqlite:///{tmp_path}/other.db")

        assert done.stdout == f"revoked {revocation_id}\n"
        assert await revoked(tmp_path / "other.db", revocation_id)

    def test_a_folder_without_a_log_is_told_instead_of_given_one(self, tmp_path: Path) -> None:
        done = token("revoke", minted(tmp_path), "--dir", tmp_path)

        assert isinstance(done.exception, LogUnavailable)
        assert not (tmp_path / ".turnline" / "log.db").exists()

    def test_what_is_no_token_is_not_revoked(self, tmp_path: Path) -> None:
        assert isinstance(token("revoke", "garbage", "--dir", tmp_path).exception, BadToken)


def test_a_scope_of_the_servers_that_nothing_needs_is_refused_with_a_hint(tmp_path: Path) -> None:
    done = token("mint", "--user", "a", "--expires", "1h", "--scope", "runs:raed", "--dir", tmp_path)

    assert isinstance(done.exception, BadToken)
    assert "did you mean 'runs:read'" in str(done.exception)


def test_a_scope_of_the_applications_own_is_minted_with_a_note_beside_it(tmp_path: Path) -> None:
    done = token("mint", "--user", "a", "--expires", "1h", "--scope", "sales", "--dir", tmp_path)

    assert done.exit_code == 0
    assert "'sales' counts only for flows whose trigger asks for it" in done.stderr
    assert "note" not in done.stdout


@pytest.mark.parametrize("expires", ["soon", "0s", "-1h", "100ms", "11000d", ""])
def test_an_expiry_that_is_none_is_a_usage_error(expires: str, tmp_path: Path) -> None:
    done = token("mint", "--user", "a", f"--expires={expires}", "--dir", tmp_path)

    assert done.exit_code == 2
    assert not (tmp_path / ".turnline").exists()


def test_a_token_without_an_expiry_cannot_be_asked_for(tmp_path: Path) -> None:
    assert token("mint", "--user", "a", "--dir", tmp_path).exit_code == 2


def test_narrowing_needs_the_public_key(tmp_path: Path) -> None:
    done = token("attenuate", minted(tmp_path / "theirs"), "--expires", "5m", "--dir", tmp_path)

    assert isinstance(done.exception, BadKey)


def test_a_key_in_the_environment_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "ca" * 32
    monkeypatch.setenv("TURNLINE_AUTH_KEY", canary)
    runs = [token("key", "--json"), token("mint", "--user", "a", "--expires", "1h", "--dir", tmp_path)]
    monkeypatch.setenv("TURNLINE_AUTH_KEY", canary + "oops")
    runs += [
        token("key"),
        token("mint", "--user", "a", "--expires", "1h"),
        token("inspect", runs[1].stdout.strip()),
    ]

    shown = "".join(f"{run.output} {run.stderr} {run.exception}" for run in runs)
    assert canary not in shown
    assert [run.exit_code for run in runs] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("verb", ["mint", "attenuate", "inspect", "revoke", "key"])
def test_every_verb_has_an_example(verb: str) -> None:
    assert "Example: turnline token" in token(verb, "--help").stdout
