"""K1: the description from the docstring, argument descriptions too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from turnline.agent.docstring import Documented, documented

GOOGLE = """Look up a customer.

Only paying ones.

Args:
    name: The customer's
        full name.
    city (str): Where they live.

Returns:
    Their number.

Raises:
    KeyError: Nobody like that.
"""

NUMPY = """Look up a customer.

Only paying ones.

Parameters
----------
name : str
    The customer's
    full name.
city
    Where they live.

Returns
-------
str
    Their number.
"""

SPHINX = """Look up a customer.

Only paying ones.

:param name: The customer's
    full name.
:param str city: Where they live.
:returns: Their number.
:raises KeyError: Nobody like that.
"""


def saying(docstring: str | None) -> Callable[..., Any]:
    def function() -> None: ...

    function.__doc__ = docstring
    return function


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_k1_every_style_says_the_same(docstring: str, caplog: pytest.LogCaptureFixture) -> None:
    read = documented(saying(docstring))

    assert read.arguments == {"name": "The customer's full name.", "city": "Where they live."}
    assert read.description == "Look up a customer.\n\nOnly paying ones.\n\nReturns: Their number."
    assert caplog.records == []


def test_k1_what_the_model_should_heed_is_kept() -> None:
    read = documented(saying("Pay.\n\nWarning:\n    Never twice.\n\nArgs:\n    to: Whom."))

    assert read.description == "Pay.\n\nWarning: Never twice."


@pytest.mark.parametrize(
    "docstring", ["Pay.", "Pay.\n\nNote: once.", "Arguments decide the price: more, dearer."]
)
def test_k1_plain_text_is_the_description_whole(docstring: str) -> None:
    assert documented(saying(docstring)) == Documented(docstring)


def test_k1_no_docstring_is_no_description() -> None:
    assert documented(saying(None)) == Documented("")


def test_the_parser_is_imported_only_where_a_docstring_has_parameters() -> None:
    code = (
        "import sys\n"
        "from turnline.agent.tool import tool\n"
        "@tool\n"
        "def pay(to: str) -> str:\n"
        "    'Pay. Returns: nothing.'\n"
        "print('griffe' in sys.modules)\n"
        "@tool\n"
        "def refund(to: str) -> str:\n"
        "    'Refund.\\n\\n    Args:\\n        to: Whom.'\n"
        "print('griffe' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "True"]
