"""Two steps that write rows, and one that fails the first time it is called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from turnline import node


def folder() -> Path:
    return Path(os.environ["ORDERS_FOLDER"])


@node("save_order")
async def save_order(ctx: dict[str, Any]) -> dict[str, Any]:
    order = await ctx["_db"]["Order"].add(customer=ctx["customer"])
    ctx["id"] = order.id
    return ctx


@node("call_carrier")
def call_carrier(ctx: dict[str, Any]) -> dict[str, Any]:
    mark = folder() / "carrier"
    if not mark.exists():
        mark.touch()
        raise ConnectionError("the carrier does not answer")
    return {"carrier": "late"}


@node("note_order")
async def note_order(ctx: dict[str, Any]) -> dict[str, Any]:
    await ctx["_db"]["Order"].update(ctx["id"], state="done")
    await ctx["_db"]["Note"].add(text=f"{ctx['customer']} pays {ctx['price']}")
    return {"noted": True}


@node("count_answers", pure=True)
def count_answers(ctx: dict[str, Any]) -> dict[str, Any]:
    return {"counted": len(ctx["answers"])}
