"""What the complaint workflow does with money."""

from __future__ import annotations

from typing import Any

from turnline import node


@node("pay_back")
async def pay_back(ctx: dict[str, Any]) -> dict[str, Any]:
    """Write the refund down; the row lands together with this step, or not at all."""
    await ctx["_db"]["Refund"].add(order=ctx["order"], amount=ctx["amount"])
    ctx["refunded"] = ctx["amount"]
    return ctx
