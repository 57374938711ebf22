"""The directory: who is registered, folded from a channel of its own, and who may have which name.

participant.registered   {agent_id, passport, resume, rule, user}; again, with changes, it replaces
participant.removed      {agent_id, reason}
user.seen                {user}: a server has authenticated this user for the first time

Rule 1: a name belongs to its first owner: the project (any program that opens the log itself), or the user
of a link whom the server authenticated. The same owner may register it again, from any process; everybody
else gets `NameTaken`. The project may let a user share its participant: it writes that user into
`Passport.owner`.

Rule 2: two names that look alike are one name. `skeleton` decides: compatibility forms, case, spaces and
the Cyrillic and Greek letters that look like Latin ones are the same. A word has letters of one script.

Rule 3: a squatter stops nobody. The project takes a name from a user, and a user takes the name of their
own user id from another user. The squatter is removed in the same append, and the name gets a new
agent id: channels of the old one keep it and give the new one no turn.

Rule 4: over a link a person has the name of their user id, and the id of a known user is nobody else's name.

Rule 5: a removed participant's name is free. Its agent id is never used again. It posts nothing, and a turn
that it has, or gets later, fails (`expectations.absences`).

Rule 6: ids stay when content is erased, so the id of a person says nothing of them. A registration whose
content was erased registers nothing (Y2).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from turnline.core.envelope import Envelope, JsonObject
from turnline.core.governance import (
    REGISTRATION_BYTES,
    Passport,
    Registrar,
    Registration,
    Resume,
    Rule,
    check_passport,
    may_address,
)
from turnline.errors import BadDraft, Denied, NameTaken, UnknownParticipant

DIRECTORY_CHANNEL: Final = "_directory"
EV_PARTICIPANT_REGISTERED: Final = "participant.registered"
EV_PARTICIPANT_REMOVED: Final = "participant.removed"
EV_USER_SEEN: Final = "user.seen"
RESERVED_NAMES: Final = ("flows", "hub", "mcp", "turnline")
"""The system's own participants. No user can register these names, or names that look like them."""
RECLAIMED: Final = "name_reclaimed"
"""Why a squatter was removed."""
UNREGISTERED: Final = "unregistered"
FORGOTTEN: Final = "forgotten"
"""Why a person was removed whose lines are erased next."""

_SLUG_CHARACTERS: Final = 40
_INVISIBLE: Final = (
    0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800,
    *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0),
)  # fmt: skip
_LOOK_ALIKES: Final = dict.fromkeys(_INVISIBLE) | str.maketrans(
    # Cyrillic, then Greek letters in lower case -> the Latin letters that they look like in one of the cases.
    "\u0430\u0432\u0435\u0437\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445"
    "\u0455\u0456\u0458\u0501\u051b\u051d\u04bb\u04cf"
    "\u03b1\u03b2\u03b3\u03b5\u03b6\u03b7\u03b9\u03ba\u03bc\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7",
    "abe3kmhopctyxsijdqwhlabyezhikmnoptyx",
)
_FREE_SCRIPTS: Final = frozenset(
    {"BOPOMOFO", "CJK", "HANGUL", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA", "KATAKANA-HIRAGANA", "MODIFIER"}
)
"""Letters that are written next to Latin ones in a word, and look like none of them: the first word of their
Unicode names, which is the script's."""


class Directory(Struct, frozen=True):
    """Who is registered, after `seq` lines."""

    seq: int = 0
    by_id: dict[str, Registration] = {}
    ids_by_name: dict[str, str] = {}
    ids_by_skeleton: dict[str, str] = {}
    removed: frozenset[str] = frozenset()
    """The agent ids of participants that were removed."""

    def resolve(self, name: str, *, asked_by: Registration | None = None) -> Registration:
        """Return the participant of this id or name.

        The error lists the registered names, without those that a rule hides from `asked_by`.
        """
        found = self.find(name)
        if found is None:
            everyone = self.by_id.values()
            raise UnknownParticipant(
                name, (one.name for one in everyone if asked_by is None or may_address(asked_by, one))
            )
        return found

    def find(self, name: str) -> Registration | None:
        return self.by_id.get(name) or self.named(name)

    def named(self, name: str) -> Registration | None:
        return self.by_id.get(self.ids_by_name.get(name, ""))

    def alike(self, name: str) -> list[Registration]:
        """List who has this name or one that looks like it."""
        ids = (self.ids_by_name.get(name), self.ids_by_skeleton.get(skeleton(name)))
        return [self.by_id[one] for one in dict.fromkeys(ids) if one is not None]


class RegistrationPlan(Struct, frozen=True, kw_only=True):
    """What a registration comes to, before anything is written."""

    registration: Registration
    known: Registration | None = None
    """What the directory says of the participant so far."""
    squatters: list[Registration] = []
    """Who has the name, or one that looks like it, and gives way (rule 3)."""
    seq: int = 0
    """The line that carried it out; 0 if none did."""

    @property
    def is_change(self) -> bool:
        return self.registration != self.known or bool(self.squatters)

    def lines(self) -> list[tuple[str, JsonObject]]:
        """Return event type and data of the lines that carry it out. They are one append."""
        gone = [
            (EV_PARTICIPANT_REMOVED, {"agent_id": one.agent_id, "reason": RECLAIMED})
            for one in self.squatters
        ]
        return [*gone, (EV_PARTICIPANT_REGISTERED, msgspec.to_builtins(self.registration))]


def plan_registration(
    directory: Directory,
    passport: Passport,
    resume: Resume | None,
    rule: Rule | None,
    *,
    new_agent_id: str,
    by: Registrar | None = None,
    users: Mapping[str, str] | None = None,
) -> RegistrationPlan:
    """Plan the registration of a name: the known one, updated, or a new one (L6).

    What is not given stays as it was registered before. `by` is the user of a link; None: the project.
    `users` are the known users of the server: user id -> skeleton. Raises `BadDraft`, `NameTaken`, `Denied`.
    """
    check_passport(passport)
    user = "" if by is None else by.user
    if by is not None:
        check_not_reserved(passport.name)
        _check_person(passport, by)
    known, squatters = None, list[Registration]()
    for other in _claimed(directory, passport.name):
        if other.name == passport.name and _is_same_owner(other, passport, user):
            known = other
        elif _rank(user, passport.name) > _rank(other.user, other.name):
            squatters.append(other)
        else:
            raise _taken(passport.name, other)
    if known is None:
        if by is not None:
            _check_not_a_user(passport.name, by, users or {})
            _check_quota(directory, by)
        _check_scripts(passport.name)
        registration = Registration(agent_id=new_agent_id, passport=passport, user=user)
    elif known.passport.kind != passport.kind:
        do = f"It is registered as a {known.passport.kind!r}; a {passport.kind!r} needs another name."
        raise NameTaken("participant", passport.name, do=do)
    else:
        registration = msgspec.structs.replace(known, passport=passport)
    registration = msgspec.structs.replace(
        registration, resume=resume or registration.resume, rule=rule or registration.rule
    )
    if by is not None:
        _check_size(registration)
    return RegistrationPlan(registration=registration, known=known, squatters=squatters)


def fold_directory(directory: Directory, envelope: Envelope) -> Directory:
    """Return the directory after `envelope`."""
    match envelope.event_type:
        case "participant.registered" if not envelope.is_erased:
            new = msgspec.convert(envelope.event_data, Registration)
            rest = _without(directory, new.agent_id)
            return Directory(
                envelope.seq,
                rest.by_id | {new.agent_id: new},
                rest.ids_by_name | {new.name: new.agent_id},
                rest.ids_by_skeleton | {skeleton(new.name): new.agent_id},
                rest.removed,
            )
        case "participant.removed":
            gone = str(envelope.event_data.get("agent_id"))
            rest = _without(directory, gone)
            by_id = {key: one for key, one in rest.by_id.items() if key != gone}
            removed = rest.removed | {gone}
            return msgspec.structs.replace(rest, seq=envelope.seq, by_id=by_id, removed=removed)
        case _:
            return msgspec.structs.replace(directory, seq=envelope.seq)


def participant_id(passport: Passport, suffix: str) -> str:
    """Return a new id: of an agent, the letters of its name and something unique; of a person, no letter."""
    if passport.kind == "human":
        return f"person-{suffix}"
    return readable_id(str(passport.name), suffix)


def readable_id(name: str, suffix: str) -> str:
    """An id a person recognises in a log: the name's letters, and something unique."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:_SLUG_CHARACTERS].strip("-")
    return f"{slug or 'participant'}-{suffix}"


def skeleton(name: str) -> str:
    """Return what a name looks like: two names with one skeleton cannot be told apart (rule 2).

    Not covered: digits that look like letters (`1` and `l`), one script's own pairs (`rn` and `m`, a Latin
    alpha and `a`), accents, and scripts beside Latin, Greek and Cyrillic.
    """
    # Upper case first: a dotless i and a long s have the capitals of i and s.
    folded = unicodedata.normalize("NFKC", name).upper().casefold()
    return " ".join(unicodedata.normalize("NFKC", folded.translate(_LOOK_ALIKES)).split())


def _without(directory: Directory, agent_id: str) -> Directory:
    """Return the directory without the names of a participant. Its place in the order stays."""
    known = directory.by_id.get(agent_id)
    if known is None:
        return directory
    names, skeletons = dict(directory.ids_by_name), dict(directory.ids_by_skeleton)
    for ids, key in ((names, known.name), (skeletons, skeleton(known.name))):
        if ids.get(key) == agent_id:
            del ids[key]
    return msgspec.structs.replace(directory, ids_by_name=names, ids_by_skeleton=skeletons)


def _claimed(directory: Directory, name: str) -> list[Registration]:
    """List who stands in the way of `name`: an equal or similar name, or an agent id that it would shadow."""
    shadowed = directory.by_id.get(name)
    found = directory.alike(name)
    return found if shadowed is None or shadowed in found else [*found, shadowed]


def _is_same_owner(known: Registration, passport: Passport, user: str) -> bool:
    """Check who comes back: the project to its own, or the user whom the passport names."""
    if not user and not known.user:
        return True
    return known.passport.owner == passport.owner


def _rank(user: str, name: str) -> int:
    """Rank a claim to a name: the project, the user whose id it is, any other user."""
    if not user:
        return 2
    return 1 if user == name else 0


def _taken(name: str, other: Registration) -> NameTaken:
    if name == other.name:
        return NameTaken("participant", name, do="Another owner registered it. Choose another name.")
    do = f"{name!a} looks like {other.name!r}, which is registered. Choose a name that differs more."
    return NameTaken("participant", name, do=do, taken=other.name)


def check_not_reserved(name: str) -> None:
    """Raise `NameTaken` for a name of the system's own participants, or one that looks like it."""
    if skeleton(name) in RESERVED_NAMES:
        do = (
            f"The system has the names {', '.join(RESERVED_NAMES)}, and what looks like them. Choose another."
        )
        raise NameTaken("participant", name, do=do)


def _check_scripts(name: str) -> None:
    """Refuse a word that mixes scripts, such as a Cyrillic letter between Latin ones; and a blank name."""
    expected = "a name that can be seen, with letters of one script in each word"
    if not skeleton(name):
        raise BadDraft("passport.name", found=f"{ascii(name)[:80]}, which is invisible", expected=expected)
    scripts = set[str]()
    for one in unicodedata.normalize("NFKC", name):
        match unicodedata.category(one)[0]:
            case "L":
                scripts |= {unicodedata.name(one, "?").partition(" ")[0]} - _FREE_SCRIPTS
            case "M":
                continue  # A mark belongs to the letter before it.
            case _:
                scripts.clear()
        if len(scripts) > 1:
            mixed = " and ".join(sorted(one.title() for one in scripts))
            found = f"{ascii(name)[:80]}, which mixes {mixed} letters in a word"
            raise BadDraft("passport.name", found=found, expected=expected)


def _check_size(registration: Registration) -> None:
    size = len(msgspec.json.encode(registration))
    if size > REGISTRATION_BYTES:
        raise BadDraft("registration", found=f"{size} bytes", expected=f"at most {REGISTRATION_BYTES}")


def _check_person(passport: Passport, by: Registrar) -> None:
    """Refuse a person under another name than their user id: others would take them for that user."""
    if passport.kind == "human" and passport.name != by.user and not by.is_admin:
        because = (
            f"over a link a person has the name of their user id, {by.user!r}; another name needs a token "
            "with the scope 'admin'"
        )
        raise Denied(by.user, what=f"register the person {passport.name!r}", because=because)


def _check_not_a_user(name: str, by: Registrar, users: Mapping[str, str]) -> None:
    if by.user == name or by.is_admin:
        return
    look = skeleton(name)
    if any(found == look and user != by.user for user, found in users.items()):
        do = "It is, or looks like, the id of another user. Choose another name."
        raise NameTaken("participant", name, do=do)


def _check_quota(directory: Directory, by: Registrar) -> None:
    count = sum(one.user == by.user for one in directory.by_id.values())
    if count >= by.quota:
        because = f"they have {count} names, and the server allows {by.quota} per user. Unregister some first"
        raise Denied(by.user, what="register another name", because=because)
