"""The safe expression language of conditions and routers. Pure, and knows nothing of channels."""

from __future__ import annotations

from turnline.expressions.language import Expression, compile_expression

__all__ = ["Expression", "compile_expression"]
