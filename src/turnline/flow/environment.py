"""`${NAME}` in a document: filled in from the environment when the document is read.

Rule 1: only texts that an author wrote into a file, once. What a variable holds is not
looked at again, and data of a run never is. `$${` stands for `${`.

Rule 2: what was filled in is not shown. `YamlDocument.written` keeps the text as it was
written, for whoever has to tell of it.

Rule 3: a workflow is kept on the log, word for word (F8). So no secret is filled into one:
`{{ secret.NAME }}` in a header keeps the reference. A variable is a secret by its name, or by what
it holds: a text that `check.secrets` would find if the author had written it (docs/security.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from turnline.flow.check.secrets import secret_in
from turnline.flow.definition.base import Json
from turnline.flow.finding import Finding, nearest
from turnline.flow.yaml_document import MAX_FILE_BYTES, Path, YamlDocument, is_storable

UNSET: Final = "TL021"
MALFORMED: Final = "TL022"
SECRET: Final = "TL023"

_VARIABLE: Final = re.compile(r"\$(\$)?\{(?:([A-Za-z_][A-Za-z0-9_]*)\})?")
_SECRETS: Final = re.compile(
    r"(^|_)(SECRETS?|PASSWORD|PASSWD|PASSPHRASE|TOKEN|CREDENTIALS?"
    r"|(API|ACCESS|PRIVATE|SECRET|SIGNING|ENCRYPTION|MASTER)_?KEY)(_|$)|_(PWD|PASS|PW)$",
    re.IGNORECASE,
)


def filled_in(document: YamlDocument, environment: Mapping[str, str]) -> tuple[YamlDocument, list[Finding]]:
    """Return the document with its variables filled in, and what is wrong with them."""
    filling = _Filling(document, environment)
    data = filling.value(document.data, ())
    if not filling.written:
        return document, filling.findings
    refused = document.refused | filling.refused
    return replace(document, data=data, written=filling.written, refused=refused), filling.findings


def secrets_filled_in(document: YamlDocument) -> list[Finding]:
    """Return a finding for each variable of a workflow that is a secret. No finding has its value."""
    return [one for path, text in document.written.items() for one in _secrets_at(document, path, text)]


def _secrets_at(document: YamlDocument, path: Path, written: str) -> list[Finding]:
    names = list(dict.fromkeys(name for escaped, name in _VARIABLE.findall(written) if name and not escaped))
    named = [name for name in names if _SECRETS.search(name)]
    holds = "looks like a secret"
    if not named and names and secret_in(path, _value_at(document.data, path)) is not None:
        named, holds = names, "holds a password or a key here"
    return [
        document.finding(
            SECRET,
            f"the variable {name!r} {holds}, and a workflow is kept on the log as it is read",
            path,
            found=f"${{{name}}}",
            fix=f"write {{{{ secret.{name} }}}} in a header, or let a @node read it from its own environment",
        )
        for name in named
    ]


def _value_at(data: Json, path: Path) -> str:
    for part in path:
        data = data[part]
    return str(data)


class _Filling:
    """Goes through one document."""

    def __init__(self, document: YamlDocument, environment: Mapping[str, str]) -> None:
        self.findings = list[Finding]()
        self.written = dict[Path, str]()
        self.refused = set[Path]()
        self._document = document
        self._environment = environment
        self._room = MAX_FILE_BYTES

    def value(self, data: Json, path: Path) -> Json:
        match data:
            case str() if "${" in data:
                self.written[path] = data
                return _VARIABLE.sub(lambda found: self._variable(found, path), data)
            case dict():
                return {key: self.value(item, (*path, key)) for key, item in data.items()}
            case list():
                return [self.value(item, (*path, place)) for place, item in enumerate(data)]
        return data

    def _variable(self, found: re.Match[str], path: Path) -> str:
        escaped, name = found.groups()
        if escaped:
            return found[0][1:]
        if name is None:
            fix = "write $${ for the two characters themselves"
            self._refuse(path, MALFORMED, "this is no variable", found="${", expected="${NAME}", fix=fix)
            return ""
        value = self._environment.get(name)
        if value is None:
            fix = (
                nearest(name, self._environment) or f"set {name}; or write $${{ for the characters themselves"
            )
            self._refuse(path, UNSET, f"the variable {name!r} is not set", found=f"${{{name}}}", fix=fix)
            return ""
        self._room -= len(value)
        if self._room < 0 or not is_storable(value):
            expected = f"Unicode without NUL, at most {MAX_FILE_BYTES} characters in a document"
            self._refuse(path, MALFORMED, f"the variable {name!r} cannot be filled in", expected=expected)
            return ""
        return value

    def _refuse(
        self, path: Path, code: str, message: str, *, found: str = "", expected: str = "", fix: str = ""
    ) -> None:
        self.refused.add(path)
        self.findings.append(
            self._document.finding(code, message, path, found=found, expected=expected, fix=fix)
        )
