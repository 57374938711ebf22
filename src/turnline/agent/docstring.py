"""What a tool's docstring says: of the tool, and of each argument (K1). Google, NumPy and Sphinx style.

The parser is imported when a docstring first has a section of parameters: it
takes longer to import than everything else here, and most tools do without.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from griffe import DocstringSection

_PARAMETERS: Final = re.compile(
    r"""^[ \t]*(?:
        (?: (?:keyword|other)[ ] )? (?:args|arguments|params|parameters) [ \t]* :? [ \t]* $  # Google, NumPy
        | : (?:param|arg|key) \w* \b  # Sphinx
    )""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_QUIET: Final[dict[str, Any]] = {"warnings": False}


@dataclass(frozen=True, slots=True)
class Documented:
    """A docstring, taken apart."""

    description: str = ""
    arguments: dict[str, str] = field(default_factory=dict)


def documented(function: Callable[..., Any]) -> Documented:
    """Return what the docstring of `function` says. Text in no known style is the description, whole."""
    text = inspect.getdoc(function) or ""
    if not _PARAMETERS.search(text):
        return Documented(text.strip())
    import griffe  # noqa: PLC0415  # See the module's docstring.

    sections = griffe.parse_auto(
        griffe.Docstring(text),
        per_style_options=griffe.PerStyleOptions(google=_QUIET, numpy=_QUIET, sphinx=_QUIET),  # type: ignore[typeddict-item]
    )
    described = (_description(section) for section in sections)
    return Documented("\n\n".join(filter(None, described)), _arguments(sections))


def _description(section: DocstringSection) -> str:
    """A section, as the model reads it; of those about Python (raises, yields ...) nothing."""
    match section.kind.value:
        case "text":
            return str(section.value).strip()
        case "admonition":
            return f"{section.title or section.value.kind}: {section.value.contents.strip()}"
        case "returns":
            return "Returns: " + "; ".join(item.description.strip() for item in section.value)
        case _:
            return ""


def _arguments(sections: list[DocstringSection]) -> dict[str, str]:
    return {
        item.name: " ".join(item.description.split())
        for section in sections
        if section.kind.value in {"parameters", "other parameters"}
        for item in section.value
    }
