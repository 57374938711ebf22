"""A project's Python files, imported.

    modules, findings = Modules(folder).load(folder.code())

Rule 1: projects do not meet. A file is imported under a name that only its project has,
and stays known under it; loading the project again imports its files again.

Rule 2: a file is executed once, however it is asked for. While the files are imported,
`import helpers` and `from nodes.leads import x` mean the project's own, as if it had been
started from its folder; `from .leads import x` works at any time.

Rule 3: an error in a file is a finding with its line, and the other files are imported.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Final

from turnline.flow.finding import Finding
from turnline.flow.folder import Folder, Unreadable

NOT_IMPORTED: Final = "TL031"

_MESSAGE_CHARACTERS: Final = 300
_NOT_OURS: Final = sys.stdlib_module_names | {"turnline"}
_LOCK: Final = RLock()
"""The import system is one for the whole process."""


class Modules:
    """Imports the files of one project."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._name = f"_turnline_project_{blake2b(str(folder.root).encode(), digest_size=8).hexdigest()}"

    def load(self, files: Sequence[Path]) -> tuple[list[ModuleType], list[Finding]]:
        """Import the files; return their modules, and what went wrong."""
        modules, findings = list[ModuleType](), list[Finding]()
        with _LOCK, self._own_package(), _plain_names(self._name, _importable(self._folder.root)):
            for file in files:
                try:
                    self._folder.check_inside(file)
                    modules.append(importlib.import_module(self._name_of(file)))
                except Unreadable as error:
                    findings.append(error.finding)
                except (Exception, SystemExit) as error:
                    findings.append(self._finding(error, file))
        return modules, findings

    @contextmanager
    def _own_package(self) -> Iterator[None]:
        """The package that stands for the project's folder, empty."""
        for name in list(sys.modules):
            if name.partition(".")[0] == self._name:
                del sys.modules[name]
        package = ModuleType(self._name, "A project.")
        package.__path__ = [str(self._folder.root)]
        sys.modules[self._name] = package
        importlib.invalidate_caches()
        writes_nothing, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            yield  # The folder is left as it is, and no file is taken for its older self.
        finally:
            sys.dont_write_bytecode = writes_nothing

    def _name_of(self, file: Path) -> str:
        parts = file.relative_to(self._folder.root).with_suffix("").parts
        return ".".join((self._name, *(part for part in parts if part != "__init__")))

    def _finding(self, error: BaseException, file: Path) -> Finding:
        where, line, column = self._place(error, file)
        lines = str(error).splitlines() or [""]
        said = f"{type(error).__name__}: {lines[0]}".replace(f"{self._name}.", "")
        is_missing = isinstance(error, ModuleNotFoundError) and self._name not in str(error.name)
        return Finding(
            code=NOT_IMPORTED,
            message=f"the file cannot be imported: {said[:_MESSAGE_CHARACTERS]}",
            file=self._folder.shown(where),
            line=line,
            column=column,
            fix=f"install what provides {error.name!r}" if is_missing else "",  # type: ignore[attr-defined]
        )

    def _place(self, error: BaseException, file: Path) -> tuple[Path, int, int]:
        """The last line of the project's own that led to the error."""
        if isinstance(error, SyntaxError) and error.filename is not None:
            where = Path(error.filename)
            if where.is_relative_to(self._folder.root):
                return where, error.lineno or 1, error.offset or 1
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            where = Path(frame.f_code.co_filename)
            if where.is_relative_to(self._folder.root):
                return where, line, 1
        return file, 1, 1


class _Siblings(MetaPathFinder, Loader):
    """Answers plain names with the modules of a project."""

    def __init__(self, project: str, tops: frozenset[str]) -> None:
        self._project = project
        self._tops = tops
        self._specs = dict[str, ModuleSpec | None]()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.partition(".")[0] in self._tops else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"{self._project}.{spec.name}")
        self._specs[module.__name__] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back: it has been executed under its own name."""
        module.__spec__ = self._specs.pop(module.__name__)


@contextmanager
def _plain_names(project: str, tops: frozenset[str]) -> Iterator[None]:
    """Let plain names mean the project's modules for a while, and nobody else's of the same name."""
    others = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in tops}
    finder = _Siblings(project, tops)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in list(sys.modules):
            if name.partition(".")[0] in tops:
                del sys.modules[name]
        sys.modules.update(others)


def _importable(root: Path) -> frozenset[str]:
    """The top-level names that a project's folder has. The standard library's stay what they are."""
    files = {path.stem for path in root.glob("*.py")}
    folders = {path.parent.name for path in root.glob("*/*.py")} | {
        path.parts[-3] for path in root.glob("*/*/*.py")
    }
    return frozenset(name for name in files | folders if name.isidentifier()) - _NOT_OURS
