"""What can be asked of a server, and which scope it needs: a table; what is not in it is denied.

    runs.start   needs  runs:start:<flow>        the resource is the flow's name
    runs.read    needs  runs:read                the resource is the run's id

A scope is segments with `:` between them. In a granted scope `*` stands for one segment, and as the
last one for all that follow: `runs:start:*`, `runs:*`, `*`. In what is needed it stands for nothing.
Beside these a flow's trigger may ask for scopes of the application's own, such as `sales`.
"""

from __future__ import annotations

import re
from datetime import datetime
from difflib import get_close_matches
from typing import Final

from turnline.errors import BadToken, Forbidden, Unauthenticated
from turnline.server.auth.principal import Principal

MAX_SCOPE_CHARACTERS: Final = 128
_SCOPE: Final = re.compile(r"(?:[A-Za-z0-9_.-]+|\*)(?::(?:[A-Za-z0-9_.-]+|\*)){0,4}")
_RESOURCE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ANY: Final = "*"
_HERE: Final = "<flow>"

OPERATIONS: Final = {
    "flows.list": "runs:read",
    "flows.read": "runs:read",
    "flows.source": "admin",
    "runs.start": f"runs:start:{_HERE}",
    "runs.list": "runs:read",
    "runs.read": "runs:read",
    "runs.stream": "runs:read",
    "runs.cancel": "runs:write",
    "runs.retry": "runs:write",
    "runs.fork": "runs:write",
    "runs.wake": "runs:write",
    "tasks.list": "tasks:read",
    "tasks.read": "tasks:read",
    "tasks.answer": "tasks:answer",
    "channels.list": "channels:read",
    "channels.read": "channels:read",
    "channels.stream": "channels:read",
    "channels.open": "channels:write",
    "channels.post": "channels:write",
    "channels.close": "channels:write",
    "channels.fork": "channels:write",
    "channels.erase": "channels:erase",
    "people.forget": "channels:erase",
    "channels.oversee": "admin",
    "channels.connect": "channels:write",
    "agents.list": "channels:read",
    "agents.rule": "admin",
    "audit.read": "admin",
    "health.read": "admin",
    "metrics.read": "admin",
    "tokens.revoke": "admin",
}
"""Operation -> the scope it needs."""

SCOPES: Final = tuple(sorted(set(OPERATIONS.values())))
_FAMILIES: Final = frozenset(scope.partition(":")[0] for scope in SCOPES)


def authorise(principal: Principal, operation: str, *, resource: str = "", now: datetime) -> None:
    """Return if `principal` may do `operation` on `resource`.

    Raises `Unauthenticated` if there is nobody who could have been granted anything: no token was sent,
    or it has expired since. Raises `Forbidden` otherwise.
    """
    if principal.is_anonymous:
        raise Unauthenticated("no token was sent")
    _check_expiry(principal, now)
    because = _denied(principal, operation, resource)
    if because:
        raise Forbidden(principal.user_id, operation=operation, resource=resource, because=because)
    check_bounds(principal, operation, resource=resource, now=now)


def check_bounds(principal: Principal, operation: str, *, resource: str, now: datetime) -> None:
    """Return if the token holds for this now: it has not expired, and was not narrowed to something else.

    It says nothing about scopes. A public flow needs none, and a narrowed token is still for something else.
    """
    _check_expiry(principal, now)
    asked = {"operation": operation, "resource": resource}
    for bound in principal.bounds:
        if asked[bound.kind] not in bound.allowed:
            because = f"the token was narrowed to another {bound.kind}"
            raise Forbidden(principal.user_id, operation=operation, resource=resource, because=because)


def covers(granted: str, needed: str) -> bool:
    """Whether one granted scope is enough for what is needed."""
    grants, needs = granted.split(":"), needed.split(":")
    if grants[-1] == _ANY and len(needs) > len(grants):
        grants += [_ANY] * (len(needs) - len(grants))
    return len(grants) == len(needs) and all(
        grant in (_ANY, need) for grant, need in zip(grants, needs, strict=True)
    )


def is_scope(text: str) -> bool:
    """Whether `text` is spelled as a scope is."""
    return len(text) <= MAX_SCOPE_CHARACTERS and _SCOPE.fullmatch(text) is not None


def check_scope(text: str) -> None:
    """Refuse what is no scope, and one of the server's own that no operation needs."""
    if is_scope(text) and (is_needed(text) or text.partition(":")[0] not in _FAMILIES):
        return
    near = get_close_matches(text, SCOPES, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    expected = f"one of {', '.join(SCOPES)}, one with '*', or your application's own"
    raise BadToken("scope", found=f"{text[:80]!r}{hint}", expected=expected)


def is_needed(scope: str) -> bool:
    """Whether some operation needs what this scope grants. The others count where a trigger asks for them."""
    return any(covers(scope, _with_the_flow_of(scope, one)) for one in SCOPES)


def check_operation(operation: str) -> None:
    """Refuse a name that is no operation."""
    if operation in OPERATIONS:
        return
    near = get_close_matches(operation, OPERATIONS, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise BadToken("operation", found=f"{operation[:80]!r}{hint}", expected=f"one of {', '.join(OPERATIONS)}")


def _check_expiry(principal: Principal, now: datetime) -> None:
    if now >= principal.expires_at:
        raise Unauthenticated("the token has expired")


def _denied(principal: Principal, operation: str, resource: str) -> str:
    """Why not; empty if nothing is against it."""
    needed = OPERATIONS.get(operation)
    if needed is None:
        return "there is no such operation"
    if _HERE in needed:
        if _RESOURCE.fullmatch(resource) is None:
            return "this is not a name a flow can have"
        needed = needed.replace(_HERE, resource)
    if not any(covers(granted, needed) for granted in principal.scopes):
        return f"it needs the scope {needed!r}"
    return ""


def _with_the_flow_of(granted: str, scope: str) -> str:
    """A known scope that names any flow, as one that names the flow of `granted`."""
    return scope.replace(_HERE, granted.rpartition(":")[2])
