"""Traces: one tree of spans from an HTTP request to the last tool, across processes.

    POST /leads -> open_channel -> turn classify -> chat gpt-5-mini -> execute_tool lookup

Rule 1: nothing is measured or exported unless the program has set OpenTelemetry up: its
own provider (`use`, or OpenTelemetry's global one), or `export` as the environment says. A program
that has not pays one look into a dictionary.

Rule 2: a span holds names, ids and counts. What was said, arguments, results, variables and the
texts of errors are never in one.

Rule 3: a channel keeps the `traceparent` it was opened under, on the log. Whoever takes a turn of
it, in whichever process and after whichever crash, goes on in the same trace.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from turnline.errors import MissingExtra

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

Kind = Literal["internal", "server", "client"]
Value = str | int | float | bool

SERVICE: Final = "turnline"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Where traces go, as OpenTelemetry names it; without one of them `export` does nothing."""

CONVERSATION: Final = "gen_ai.conversation.id"
OPERATION: Final = "gen_ai.operation.name"
ERROR: Final = "error.type"

_used: list[TracerProvider] = []
"""What `use` was given last, if anything."""


class Recording:
    """A span in the making; of a program without traces it takes everything and keeps nothing."""

    def __init__(self, span: Span | None = None) -> None:
        self._span = span

    def note(self, attributes: Mapping[str, Value]) -> None:
        """Add names, ids and counts (rule 2)."""
        if self._span is not None:
            self._span.set_attributes(attributes)

    def fail(self, kind: str) -> None:
        """Mark it as failed, by the name of what happened."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode  # noqa: PLC0415

            self._span.set_attribute(ERROR, kind)
            self._span.set_status(StatusCode.ERROR)


_UNRECORDED: Final = nullcontext(Recording())
"""Of a program without traces: one for all of its spans."""


def span(
    name: str, attributes: Mapping[str, Value] | None = None, *, kind: Kind = "internal"
) -> AbstractContextManager[Recording]:
    """Record what happens inside, below the span that is current."""
    tracer = _tracer()
    return _UNRECORDED if tracer is None else _recorded(tracer, name, attributes, kind, None)


def span_below(
    traceparent: str | None,
    name: str,
    attributes: Mapping[str, Value] | None = None,
    *,
    kind: Kind = "internal",
) -> AbstractContextManager[Recording]:
    """Record what happens inside below the span that `traceparent` names, whatever is current.

    None begins a trace of its own.
    """
    tracer = _tracer()
    if tracer is None:
        return _UNRECORDED
    return _recorded(tracer, name, attributes, kind, _context(traceparent))


def current() -> str | None:
    """The `traceparent` of the span that is current, for whoever goes on elsewhere."""
    if _tracer() is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


def use(provider: TracerProvider | None) -> None:
    """Give spans to `provider` from now on; with None to OpenTelemetry's global one, if it is set."""
    _used[:] = [] if provider is None else [provider]


def export(environ: Mapping[str, str], *, service: str = SERVICE) -> SdkTracerProvider | None:
    """Export spans over OTLP if the environment says where to; return the provider, to be shut down.

    Everything else (headers, sampling, resource) is as OpenTelemetry's own variables say.
    """
    if not any(environ.get(name) for name in ENDPOINTS):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError:
        raise MissingExtra("exported traces", extra="otel") from None
    resource = Resource.create({"service.name": environ.get("OTEL_SERVICE_NAME", service)})
    provider = SdkTracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    use(provider)
    return provider


@contextmanager
def _recorded(
    tracer: Tracer,
    name: str,
    attributes: Mapping[str, Value] | None,
    kind: Kind,
    context: Context | None,
) -> Iterator[Recording]:
    from opentelemetry.trace import SpanKind  # noqa: PLC0415

    with tracer.start_as_current_span(
        name,
        context=context,
        kind=SpanKind[kind.upper()],
        attributes=attributes,
        record_exception=False,  # Its text is not ours to tell (rule 2).
        set_status_on_exception=False,
    ) as made:
        recording = Recording(made)
        try:
            yield recording
        except BaseException as error:
            recording.fail(type(error).__name__)
            raise


def _context(traceparent: str | None) -> Context:
    from opentelemetry.context import Context  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    carrier = {} if traceparent is None else {"traceparent": traceparent}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _tracer() -> Tracer | None:
    if _used:
        return _tracer_of(_used[0])
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:  # Then nobody can have set it up.
        return None
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider) else _tracer_of(provider)


@lru_cache(maxsize=1)
def _tracer_of(provider: TracerProvider) -> Tracer:
    return provider.get_tracer(SERVICE)
