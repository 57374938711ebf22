"""The project's root key: where it comes from, and that it is never shown."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from turnline.errors import BadKey
from turnline.server.auth.keys import (
    KEY_FILE,
    KEY_VARIABLE,
    PUBLIC_KEY_VARIABLE,
    RootKey,
    ensure_root_key,
    root_key,
    verifying_key,
)

from .scenes import KEY, OTHER_KEY, minted

PRIVATE = "11" * 32
NOTHING: Mapping[str, str] = {}


def said(refused: pytest.ExceptionInfo[BadKey]) -> str:
    """All that a trace of the error would show."""
    return f"{refused.value} {refused.value.__dict__} {refused.value.__cause__}"


def test_the_key_of_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    in_file = ensure_root_key(NOTHING, tmp_path)

    assert root_key({KEY_VARIABLE: PRIVATE}, tmp_path).public == KEY.public
    assert root_key(NOTHING, tmp_path).public == in_file.public != KEY.public


@pytest.mark.parametrize("text", [PRIVATE, f"ed25519-private/{PRIVATE}", f" {PRIVATE.upper()}\n"])
def test_a_key_is_read_with_and_without_the_name_of_its_kind(text: str) -> None:
    assert RootKey.from_text(text, where="here").public == KEY.public


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    first = ensure_root_key(NOTHING, tmp_path)
    again = ensure_root_key(NOTHING, tmp_path)

    assert first.public == again.public
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / KEY_FILE).parent.iterdir()] == ["auth.key"]


def test_two_projects_have_two_keys(tmp_path: Path) -> None:
    one, other = (ensure_root_key(NOTHING, tmp_path / name) for name in ("one", "other"))

    assert one.public != other.public


def test_nothing_is_written_when_the_environment_has_the_key(tmp_path: Path) -> None:
    ensure_root_key({KEY_VARIABLE: PRIVATE}, tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    ensure_root_key(NOTHING, tmp_path)
    (tmp_path / KEY_FILE).chmod(0o640)

    with pytest.raises(BadKey, match="chmod 600"):
        root_key(NOTHING, tmp_path)


def test_no_key_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(BadKey, match="turnline token key"):
        root_key(NOTHING, tmp_path)


def test_a_folder_that_cannot_hold_a_key_is_told(tmp_path: Path) -> None:
    (tmp_path / ".turnline").write_text("a file where the folder belongs")

    with pytest.raises(BadKey, match=KEY_VARIABLE):
        ensure_root_key(NOTHING, tmp_path)


@pytest.mark.parametrize(
    "text", ["canary", "canary" + PRIVATE, PRIVATE[:-1] + "g", PRIVATE + "00", "canary\n" * 9]
)
def test_what_is_no_key_is_refused_without_being_shown(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadKey) as refused:
        root_key({KEY_VARIABLE: text}, tmp_path)
    assert text not in said(refused)
    assert "canary" not in said(refused)
    assert "1111" not in said(refused)

    (tmp_path / ".turnline").mkdir()
    (tmp_path / KEY_FILE).write_text(text)
    (tmp_path / KEY_FILE).chmod(0o600)
    with pytest.raises(BadKey) as refused:
        root_key(NOTHING, tmp_path)
    assert "canary" not in said(refused)
    assert "1111" not in said(refused)


def test_a_key_is_in_no_repr() -> None:
    shown = f"{KEY} {KEY!r} {[KEY]}"

    assert PRIVATE not in shown
    assert KEY.public in shown


def test_the_public_key_is_enough_to_verify(tmp_path: Path) -> None:
    for text in (KEY.public, f"ed25519/{KEY.public}", KEY.public.upper()):
        assert verifying_key({PUBLIC_KEY_VARIABLE: text}, tmp_path) == KEY.public


def test_without_a_public_key_the_root_key_verifies(tmp_path: Path) -> None:
    assert verifying_key({KEY_VARIABLE: PRIVATE}, tmp_path) == KEY.public


def test_two_keys_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    both = {KEY_VARIABLE: PRIVATE, PUBLIC_KEY_VARIABLE: OTHER_KEY.public}

    with pytest.raises(BadKey, match="not the public half"):
        verifying_key(both, tmp_path)
    assert verifying_key(both | {PUBLIC_KEY_VARIABLE: KEY.public}, tmp_path) == KEY.public


def test_a_public_key_that_is_none_is_refused(tmp_path: Path) -> None:
    """Somebody may have put a token or a private key there: it is not shown."""
    with pytest.raises(BadKey) as refused:
        verifying_key({PUBLIC_KEY_VARIABLE: minted()}, tmp_path)

    assert minted()[:20] not in said(refused)
