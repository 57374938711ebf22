"""The pictures of the cookbook are text files: boxes, Mermaid and DOT, as they are printed.

`REWRITE=1` records them anew; commit a difference only if you can explain it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turnline.core.study.boxes import boxes
from turnline.core.study.dot import dot
from turnline.core.study.drawing import graph_picture
from turnline.core.study.mermaid import mermaid

from .cookbook import COOKBOOK, played

FOLDER = Path(__file__).parent / "pictures"


@pytest.mark.parametrize("file", COOKBOOK, ids=lambda path: path.stem)
def test_the_picture_of_a_pattern_is_this(file: Path) -> None:
    picture = graph_picture(played(file)[0])
    drawn = "----\n".join([boxes(picture), mermaid(picture), dot(picture)])
    recorded = FOLDER / f"{file.stem}.txt"
    if os.environ.get("REWRITE"):
        recorded.write_text(drawn)

    assert drawn == recorded.read_text()


def test_every_recorded_picture_is_of_a_pattern() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {path.stem for path in COOKBOOK}
