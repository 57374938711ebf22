"""The two agents of the desk. They follow a script unless TURNLINE_MODEL names a model."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Final, Literal

from turnline import Agent, ToolResult
from turnline.agent.messages import Message, ToolCall, ToolMessage, UserMessage
from turnline.testing import ScriptedModel, call

CHARGES: Final = {1042: [19.90, 19.90], 1043: [5.00]}
"""Order -> what was charged for it."""
MONEY: Final = ("charge", "invoice", "refund", "paid")

Says = Callable[[tuple[Message, ...]], str | ToolCall]


def triage_says(messages: tuple[Message, ...]) -> str | ToolCall:
    if any(isinstance(one, ToolMessage) for one in messages):
        return "Billing will look at this."
    is_money = any(word in asked(messages) for word in MONEY)
    return call("hand_to", desk="billing") if is_money else "Please turn it off and on again."


def billing_says(messages: tuple[Message, ...]) -> str | ToolCall:
    order = int(re.findall(r"order (\d+)", asked(messages))[0])
    charges = CHARGES.get(order, [])
    done = [one.tool for one in messages if isinstance(one, ToolMessage)]
    if "look_up" not in done:
        return call("look_up", order=order)
    if len(charges) < 2:  # noqa: PLR2004  Once is as it should be.
        return f"Order {order} was charged once; nothing is owed."
    if "propose_refund" not in done:
        return call("propose_refund", amount=charges[0])
    return f"Order {order} was charged twice. I propose to pay {charges[0]:.2f} back; a supervisor decides."


def asked(messages: Sequence[Message]) -> str:
    return " ".join(one.text for one in messages if isinstance(one, UserMessage)).lower()


def model(says: Says) -> str | ScriptedModel:
    return os.environ.get("TURNLINE_MODEL") or ScriptedModel(says)


triage = Agent(
    "triage",
    "You are the first to read a customer's complaint. Hand what is about money to billing, and say so. "
    "Answer the rest yourself, in one sentence.",
    config=model(triage_says),
)
billing = Agent(
    "billing",
    "Look up what was charged for the order. Propose a refund of what was charged more than once, and tell "
    "the customer in one sentence; a supervisor decides about it.",
    config=model(billing_says),
)


@triage.tool
def hand_to(desk: Literal["billing"]) -> ToolResult:
    """Hand the complaint to a desk."""
    return ToolResult(f"handed to {desk}", context={"desk": desk})


@billing.tool
def look_up(order: int) -> list[float]:
    """Return what was charged for an order."""
    return CHARGES.get(order, [])


@billing.tool
def propose_refund(amount: float) -> ToolResult:
    """Propose to pay an amount back."""
    return ToolResult(f"{amount:.2f} is proposed", context={"amount": amount})
