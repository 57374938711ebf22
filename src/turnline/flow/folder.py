"""A project's folder: which files belong to it, and how they are read.

Rule 1: nothing outside the root is read. A link that leads out of it is a finding.

Rule 2: what is hidden, a virtual environment, or a project of its own (a folder below
with a turnline.yaml) is passed over, and links to folders are not followed.

Rule 3: whatever belongs to a file's project is executed. So what somebody else has left in
a folder above it, or beside it, does not belong to it (`/tmp` is such a place).
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from turnline.flow.finding import Finding
from turnline.flow.settings import SETTINGS_FILE
from turnline.flow.yaml_document import MAX_FILE_BYTES

UNREADABLE: Final = "TL008"
MAX_FILES: Final = 2_000
"""Documents of one project."""
MAX_FOLDERS: Final = 20_000
CODE_FOLDERS: Final = ("nodes", "agents")

_YAML: Final = (".yaml", ".yml")
_ROOT: Final = 0
_WORD: Final = re.compile(r"\w+")
_PASSED_OVER: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


class Unreadable(Exception):
    """A file that is not read; `finding` says why."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(finding.message)


class Folder:
    """The files of one project. Paths are absolute; findings have them as `shown` says."""

    def __init__(self, root: Path, *, shown_as: Path) -> None:
        self.root = root.resolve()
        self._shown_as = shown_as

    def shown(self, path: Path | str) -> str:
        """A file's path as whoever asked for the project would write it."""
        try:
            return str(self._shown_as / Path(path).relative_to(self.root))
        except ValueError:
            return str(path)

    def documents(self) -> list[Path]:
        """Every YAML file of the project, but for its settings. Raises `Unreadable` if they are too many."""
        found = list[Path]()
        for folder, names in self._folders():
            paths = [folder / name for name in names if not name.startswith(".")]
            found += [path for path in paths if path.suffix in _YAML and path != self.settings]
            if len(found) > MAX_FILES:
                expected = f"at most {MAX_FILES} documents"
                raise self._unreadable(self.root, "this is too large for a project", expected=expected)
        return found

    def sources(self, *, below: bool = True) -> Iterator[Path]:
        """Yield every file that a change of the project may be in: YAML and Python. Raises `Unreadable`.

        Without `below`, only those of the folder itself.
        """
        for folder, names in self._folders():
            yield from (folder / name for name in names if name.endswith((*_YAML, ".py")))
            if not below:
                return

    @property
    def settings(self) -> Path:
        return self.root / SETTINGS_FILE

    def words(self, *, is_project: bool = True) -> frozenset[str]:
        """Return the words of all Python files below the folder, as far as they can be read.

        Of a folder that is not a project, only its own files are read: much else may be below it.
        """
        found = set[str]()
        with suppress(Unreadable):
            for path in self.sources(below=is_project):
                with suppress(Unreadable):
                    if path.suffix == ".py":
                        found.update(_WORD.findall(self.read(path).decode(errors="replace")))
        return frozenset(found)

    def code(self) -> list[Path]:
        """The Python files that are imported: those in nodes/ and agents/."""
        return [path for name in CODE_FOLDERS for path in python_files(self.root / name)]

    def code_beside(self, files: Sequence[Path]) -> list[Path]:
        """The Python files beside these ones, as far as they use Turnline and only define things.

        Other scripts are not run, and neither is a program that runs a conversation when it is imported.
        """
        owners = {file.parent: _owner(file) for file in files}
        beside = [(path, owner) for folder, owner in owners.items() for path in python_files(folder)]
        return [path for path, owner in beside if _owner(path) == owner and self._uses_turnline(path)]

    def read(self, path: Path) -> bytes:
        """Return what a file holds, cut off just beyond what is allowed. Raises `Unreadable`."""
        self.check_inside(path)
        try:
            if not path.is_file():  # A pipe would be waited for.
                found = "this is a folder; name a file in it" if path.is_dir() else "there is no such file"
                raise self._unreadable(path, found)
            with path.open("rb") as file:
                return file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            found = error.strerror or type(error).__name__
            raise self._unreadable(path, "the file cannot be read", found=found) from None

    def check_inside(self, path: Path) -> None:
        """Raise `Unreadable` for a file outside the project."""
        try:
            is_inside = path.resolve().is_relative_to(self.root)
        except (OSError, RuntimeError):  # A link that leads to itself.
            is_inside = False
        if not is_inside:
            expected = "a file below the project's folder"
            raise self._unreadable(path, "the file is outside the project", expected=expected)

    def _uses_turnline(self, path: Path) -> bool:
        try:
            return _is_code(self.read(path))
        except Unreadable:
            return False

    def _folders(self) -> Iterator[tuple[Path, list[str]]]:
        """Every folder that belongs to the project, with its files, in their order."""
        if not self.root.is_dir():
            raise self._unreadable(self.root, "there is no such folder")
        for count, (folder, below, names) in enumerate(os.walk(self.root)):
            here = Path(folder)
            below[:] = sorted(name for name in below if _belongs(here / name))
            if count >= MAX_FOLDERS:
                expected = f"at most {MAX_FOLDERS} folders"
                raise self._unreadable(self.root, "this is too large for a project", expected=expected)
            yield here, sorted(names)

    def _unreadable(self, path: Path, message: str, *, found: str = "", expected: str = "") -> Unreadable:
        file = self.shown(path)
        return Unreadable(
            Finding(code=UNREADABLE, message=message, file=file, found=found, expected=expected)
        )


def python_files(folder: Path) -> list[Path]:
    """The modules of a folder; those with `_` before their name are for the others to import."""
    if not folder.is_dir():
        return []
    return sorted(
        path for path in folder.glob("*.py") if path.name == "__init__.py" or path.name[0] not in "_."
    )


def project_root(files: Sequence[Path]) -> tuple[Path, bool]:
    """Return the project of some files, and whether there is one: else it is the folder they share.

    A project has turnline.yaml, or code in nodes/ or agents/; the nearest one above them is theirs.
    """
    top = Path(os.path.commonpath([file.parent for file in files]))
    owners = {_ROOT, *map(_owner, files)}
    for folder in (top, *top.parents):
        code = [folder / name for name in CODE_FOLDERS if python_files(folder / name)]
        if any(sign.exists() and _owner(sign) in owners for sign in (folder / SETTINGS_FILE, *code)):
            return folder, True
    return top, False


def _owner(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return -1


def _belongs(folder: Path) -> bool:
    return not (
        folder.name.startswith(".")
        or folder.name in _PASSED_OVER
        or (folder / "pyvenv.cfg").exists()
        or (folder / SETTINGS_FILE).exists()
    )


def _is_code(source: bytes) -> bool:
    """Whether the file uses Turnline, and does not run a conversation when it is imported."""
    try:
        tree = ast.parse(source)
        nodes = list(ast.walk(tree))
    except (SyntaxError, ValueError, RecursionError):
        return b"turnline" in source  # Importing it says what is wrong.
    imports = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
    froms = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    if not any(name.partition(".")[0] == "turnline" for name in imports + froms):
        return False
    return not any(map(_runs, _executed(tree)))


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what Python executes when the file is imported. Functions are not called then."""
    pending = [tree]
    while pending:
        node = pending.pop()
        is_guarded = isinstance(node, ast.If) and _names_main(node.test)
        if not is_guarded and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            pending += ast.iter_child_nodes(node)


def _names_main(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))


def _runs(node: ast.AST) -> bool:
    """Whether this is a call of `run_sync` or `asyncio.run`."""
    match node:
        case ast.Call(func=ast.Name(id="run_sync") | ast.Attribute(attr="run_sync")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="run")):
            return True
    return False
