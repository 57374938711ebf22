"""A server as an ASGI app: alone, or mounted in somebody's own FastAPI app.

    app = create_app(runtime, authenticator=...)                   # served as it is

    flows = create_app(runtime, authenticator=...)                 # or below another

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with flows.router.lifespan_context(flows):
            yield

    app = FastAPI(lifespan=lifespan)  # Or Starlette.
    app.mount("/flows", flows)

A mounted app's lifespan is not run by the app above it, so that one has to. It opens the
runtime, and closes it in the end; a runtime that is open already is left to whoever opened
it. Before it is open, everything but `/health` answers 503.

It is Starlette, not FastAPI: the table of operations gives the routes and the OpenAPI document. FastAPI had
nothing to do for its 75 to 100 us a request and 0.45 s of import.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec

from turnline.errors import MissingExtra

try:
    from starlette.applications import Starlette
except ModuleNotFoundError:
    raise MissingExtra("servers", extra="server") from None
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from turnline.core.envelope import JsonObject
from turnline.errors import NameTaken
from turnline.hub.timers import sortable_ids
from turnline.server.access import Access, OpenAuthenticator
from turnline.server.answers import JSON, failure
from turnline.server.auth.authenticator import Authenticator
from turnline.server.channels.changing import ChannelChanges
from turnline.server.channels.looking import ChannelRoutes
from turnline.server.endpoint import Endpoint
from turnline.server.flows import FlowRoutes
from turnline.server.health import HealthRoutes
from turnline.server.house import House, house_of, placed
from turnline.server.openapi import document
from turnline.server.operation import Handler, Operation
from turnline.server.origin import OriginCheck
from turnline.server.parameters import check_query
from turnline.server.problems import NOT_FOUND, Answer, log_failed_run
from turnline.server.runs import RunRoutes
from turnline.server.runtime import Runtime
from turnline.server.settings import ServerSettings
from turnline.server.studio import pages
from turnline.server.tasks import TaskRoutes
from turnline.server.triggers import trigger_operation
from turnline.server.ws_route import PATH as WS_PATH, WsRoute

TITLE: Final = "Turnline"


def create_app(
    runtime: Runtime,
    *,
    authenticator: Authenticator | OpenAuthenticator,
    settings: ServerSettings | None = None,
    title: str = TITLE,
) -> Starlette:
    """Return the app that serves the runtime's flows. Raises `NameTaken` for two triggers of one path.

    Its `state.openapi` is the OpenAPI document.

    An authenticator that reads the log is given as a function that opens it, such as
    `access.production(folder)`.
    """
    access = Access(runtime, None if callable(authenticator) else authenticator)
    house = house_of(runtime, access, settings or ServerSettings())
    ws = WsRoute(house)
    runtime.on_failed = log_failed_run

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if runtime.status == "new":
                await stack.enter_async_context(runtime)
            if callable(authenticator):
                access.authenticator = await stack.enter_async_context(authenticator(runtime))
            await stack.enter_async_context(ws.closing())
            yield

    operations = _operations(house)
    said = document(operations, title=title)
    routes = list(_routes(house, operations, said))
    middleware = [Middleware(ExactPaths, routes)]
    if house.settings.same_origin or house.settings.hosts is not None:
        linked = [pages.PATH] if house.settings.studio else []
        middleware.insert(0, Middleware(OriginCheck, hosts=house.settings.hosts, linked=linked))
    app = Starlette(
        lifespan=lifespan,
        routes=[*routes, WebSocketRoute(WS_PATH, ws)],
        exception_handlers={HTTPException: _no_such_path},
        middleware=middleware,
    )
    app.router.redirect_slashes = False
    app.state.openapi = said
    return app


class ExactPaths:
    """An ASGI app around a router: a path without parameters is looked up, not compared with each route.

    The router would find the same route: what is spelled out goes before a parameter in its place.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[Route]) -> None:
        self._app = app
        self._endpoints = {one.path: one.app for one in routes if not one.param_convertors}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Below another app the path begins with that app's, which the router takes off.
        is_plain = scope["type"] == "http" and not scope.get("root_path")
        await (self._endpoints.get(scope["path"], self._app) if is_plain else self._app)(scope, receive, send)


def _operations(house: House) -> list[Operation]:
    own = [
        *FlowRoutes(house).operations(),
        *RunRoutes(house).operations(),
        *TaskRoutes(house).operations(),
        *ChannelRoutes(house).operations(),
        *ChannelChanges(house).operations(),
    ]
    triggers = [
        trigger_operation(house, flow, flow.spec.trigger)
        for flow in house.runtime.flows.values()
        if flow.spec.trigger is not None
    ]
    _check_paths(own, triggers)
    return own + triggers


def _check_paths(own: Sequence[Operation], triggers: Sequence[Operation]) -> None:
    """Refuse a trigger that the server or another flow would answer in its place."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for one in triggers:
        name = f"{one.method} {one.path}"
        if one.path in _FREE or one.shape[1] == _STUDIO or any(_answers(ours, one) for ours in own):
            raise NameTaken("path", name, do="The server itself answers it; give the trigger another one.")
        if (one.method, one.shape) in seen:
            raise NameTaken("path", name, do="Two flows have it; give one of them another.")
        seen.add((one.method, one.shape))


def _answers(ours: Operation, theirs: Operation) -> bool:
    """Whether an operation of the server's own would be asked where a flow's trigger is meant."""
    pairs = zip(ours.shape, theirs.shape, strict=False)
    is_alike = all("{}" in pair or pair[0] == pair[1] for pair in pairs)
    return ours.method == theirs.method and len(ours.shape) == len(theirs.shape) and is_alike


def _routes(house: House, operations: Iterable[Operation], said: JsonObject) -> Iterable[Route]:
    """One route for each shape of a path. What is spelled out goes before a parameter in its place."""
    new_id = sortable_ids(house.runtime.clock)
    health = HealthRoutes(house)
    free: dict[str, Handler] = {
        "/health": health.health,
        "/ready": health.ready,
        "/openapi.json": _openapi(house, said),
    }
    for path in _FREE:
        yield Route(path, Endpoint(path, {"GET": free[path]}, new_id))
    if house.settings.studio:
        yield Route(pages.PATH, Endpoint(pages.PATH, {"GET": pages.index}, new_id))
        below = pages.PATH + "/{path:path}"
        yield Route(below, Endpoint(below, {"GET": pages.file}, new_id))
    paths: defaultdict[tuple[str, ...], list[Operation]] = defaultdict(list)
    for one in operations:
        paths[one.shape].append(one)
    for shape in sorted(paths, key=lambda shape: [part == "{}" for part in shape]):
        handlers = {one.method: placed(house, check_query(one)) for one in paths[shape]}
        path = paths[shape][0].path
        yield Route(path, Endpoint(path, handlers, new_id))


def _openapi(house: House, said: JsonObject) -> Handler:
    body = msgspec.json.encode(said)

    async def answer(request: Request) -> Response:
        if not house.settings.public_openapi:
            await house.access.admit(request, "flows.list")
        return Response(body, media_type=JSON)

    return answer


async def _no_such_path(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else NOT_FOUND
    message = "there is nothing at this path; GET /openapi.json lists what is served."
    return failure(Answer(status=status, type="not_found", message=message))


_FREE: Final = ("/health", "/ready", "/openapi.json")
"""What is answered without a token and without a place among the requests."""
_STUDIO: Final = pages.PATH.strip("/")
