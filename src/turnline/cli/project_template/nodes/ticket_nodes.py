"""What the steps of the workflow do: each function gets the run's context and changes it."""

from __future__ import annotations

from typing import Any

from turnline import node


@node("save_ticket")
async def save_ticket(ctx: dict[str, Any]) -> dict[str, Any]:
    """Write the ticket down; the row lands together with this step, or not at all."""
    ticket = await ctx["_db"]["Ticket"].add(email=ctx["email"], text=ctx["text"])
    ctx["id"] = ticket.id
    ctx["status"] = ticket.status
    return ctx


@node("raise_ticket")
async def raise_ticket(ctx: dict[str, Any]) -> dict[str, Any]:
    """Mark the ticket as urgent."""
    await ctx["_db"]["Ticket"].update(ctx["id"], status="urgent")
    ctx["status"] = "urgent"
    return ctx
