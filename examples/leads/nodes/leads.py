"""What the steps of the lead workflows do."""

from __future__ import annotations

from typing import Any, Final

from turnline import node

PRIVATE_DOMAINS: Final = ("gmail.com", "outlook.com", "gmx.net")


@node("save_lead")
async def save_lead(ctx: dict[str, Any]) -> dict[str, Any]:
    """Write the lead down; the row lands together with this step, or not at all."""
    lead = await ctx["_db"]["Lead"].add(email=ctx["email"], name=ctx["name"], company=ctx["company"])
    ctx["id"] = lead.id
    ctx["created_at"] = lead.created_at
    ctx["domain"] = domain_of(ctx["email"])
    return ctx


@node("flag_for_review")
async def flag_for_review(ctx: dict[str, Any]) -> dict[str, Any]:
    """Leave the lead to a person."""
    await ctx["_db"]["Lead"].update(ctx["id"], status="review")
    ctx["needs_review"] = True
    return ctx


@node("find_domain")
def find_domain(ctx: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Say whether a contact writes from a private address."""
    ctx["domain"] = domain_of(ctx["contact"]["email"])
    return ctx, "private" if ctx["domain"] in PRIVATE_DOMAINS else "default"


def domain_of(email: str) -> str:
    return email.partition("@")[2].lower()
