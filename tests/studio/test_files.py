"""The studio's files: all there, none bigger than they have to be, and none that makes HTML of text."""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest

from tests.server.stage import served
from turnline.server.studio.pages import HEADERS, POLICY, pages

STATIC = Path(str(files("turnline.server.studio"))) / "static"
OWN = sorted(path for path in STATIC.rglob("*.js") if "vendor" not in path.parts)
MOST_LINES = 400
MOST_VENDORED_BYTES = 70_000
DIGESTS = {
    "dagre.js": "3152d214941a5df3a3d4c079dfa338c3cd7a6c0d4c1b4c3a2fdb6bba6f6facf9",
    "htm.js": "7a31776e04bd4afde0d4308177d26f377716fcf7e4bd70be590746d6aa594f08",
    "preact-hooks.js": "5c29238e5dc99df306d7f7fff038591a397cfcfabb59f81fbdef43d670aa0566",
    "preact.js": "aa558e32247d4ccea18c5addbb0311bc1771bf39734185be01dc0c3c4cf3fd6d",
}
"""Of the vendored libraries, as their packages have them."""
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|DOMParser|srcdoc"
    r"|createContextualFragment|setHTMLUnsafe|new Function|\beval\b|https?://(?!www\.w3\.org)"
)


@pytest.mark.parametrize("path", OWN, ids=lambda path: str(path.relative_to(STATIC)))
def test_a_file_says_what_it_is_is_short_and_makes_no_html_of_text(path: Path) -> None:
    text = path.read_text()

    assert text.startswith("// "), "a file opens with what it is"
    assert len(text.splitlines()) <= MOST_LINES
    assert MARKUP.findall(text) == []


def test_no_file_of_the_page_has_a_script_or_a_style_inside() -> None:
    text = (STATIC / "index.html").read_text()

    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bon\w+=|style=", text) == []


def test_every_file_a_page_names_is_one_of_the_packages_files() -> None:
    named = re.findall(r'(?:src|href)="studio/([^"]+)"', (STATIC / "index.html").read_text())
    for path in OWN:
        for other in re.findall(r'from "(\.[^"]+)"', path.read_text()):
            named.append(str((path.parent / other).resolve().relative_to(STATIC)))

    assert len(named) > 20
    assert set(named) <= pages().keys()


def test_the_vendored_libraries_are_unchanged_licensed_and_small() -> None:
    vendored = {name: (STATIC / "vendor" / name).read_bytes() for name in DIGESTS}
    readme = (STATIC / "vendor" / "README.md").read_text()

    assert {name: sha256(body).hexdigest() for name, body in vendored.items()} == DIGESTS
    assert sum(map(len, vendored.values())) < MOST_VENDORED_BYTES
    assert all(f"`{name}`" in readme for name in DIGESTS)
    assert {"preact.LICENSE", "htm.LICENSE", "dagre.LICENSE"} <= {
        one.name for one in (STATIC / "vendor").iterdir()
    }


async def test_every_file_is_served_with_a_strict_policy_and_nothing_else_is() -> None:
    async with served() as server:
        answers = {path: await server.get(f"/studio/{path}", token="") for path in pages()}
        page = await server.get("/studio", token="")
        slash = await server.get("/studio/", token="")
        again = await server.get("/studio", token="", If_None_Match=page.headers["etag"])
        others = [
            await server.get(f"/studio/{path}", token="")
            for path in (
                "pages.py",
                "../pages.py",
                "%2e%2e/pages.py",
                "vendor",
                "nothing.js",
                "..%2f..%2fapp.py",
            )
        ]

    for answer in (page, *answers.values()):
        assert answer.status_code == 200
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "'unsafe" not in POLICY
    assert POLICY.startswith("default-src 'self';")
    assert answers["main.js"].headers["content-type"].startswith("text/javascript")
    assert (again.status_code, again.content) == (304, b"")
    assert (slash.status_code, slash.headers["location"]) == (307, "../studio")
    assert {one.status_code for one in others} == {404}
