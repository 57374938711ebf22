"""One request, one reply, through pydantic-ai's `direct` module.

    reply(request) -> conversation -> model_request or model_request_stream -> reply_from

Rule 1: one call is one HTTP request. Retrying is the caller's, who logs attempts.
Rule 2: the pieces given to `on_text` add up to the reply's text, or the call fails.
Rule 3: whatever the provider raises leaves as a `ModelError`; what `on_text`
raises, and cancellation, leave as they are.
"""

# ruff: noqa: PLC0415  pydantic-ai is imported when a model answers for the first time (see the package).

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from turnline.agent.messages import ModelReply
from turnline.agent.model import ModelRequest, OnText
from turnline.agent.models.conversion import (
    ANSWER_TOOL,
    AnswerForm,
    answer_form,
    conversation,
    reply_from,
    without_raw,
)
from turnline.agent.models.failures import failure
from turnline.agent.models.lifetime import PerLoop
from turnline.agent.storable import writable
from turnline.core.envelope import JsonObject
from turnline.errors import ModelError

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponseStreamEvent
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

_STRICT_WITH_LIMITS: Final = frozenset({"anthropic", "bedrock"})
"""Their JSON mode refuses schemas over a size; pydantic-ai weighs that itself."""
_JSON_OR_TOOLS: Final = frozenset({"google", "google-cloud"})
"""Some of their models have a JSON mode and tools, but not in one request."""
_NO_FINISH_REASON: Final = frozenset({"test", "function", "snowflake"})
"""Their streams never say why they ended."""


class PydanticAiModel:
    """See `turnline.agent.model.Model`. `make` returns the provider's model; it is called in a thread.

    `settings` are pydantic-ai's `ModelSettings`, sent with every request.
    `secrets` are taken out of every error's text.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Model[Any]],
        *,
        settings: Mapping[str, Any] | None = None,
        secrets: Collection[str] = (),
    ) -> None:
        self.name = name
        # One attempt: nothing below may retry.
        self._settings = {**(settings or {}), "max_retries": 0}
        self._secrets = tuple(secrets)
        self._provider = PerLoop(lambda: _imported(make))

    def __repr__(self) -> str:
        return f"PydanticAiModel({self.name!r})"

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        listener = _Listener(on_text) if on_text is not None else None
        try:
            async with self._provider.use() as model:
                return await self._ask(model, request, listener)
        except ModelError:
            raise
        except Exception as error:
            if listener is not None and error is listener.raised:
                raise
            failed = failure(self.name, error, secrets=self._secrets)
        # Raised out here, so that the provider's error does not hang on it.
        raise failed

    async def _ask(self, model: Model[Any], request: ModelRequest, listener: _Listener | None) -> ModelReply:
        form = None if request.schema is None else answer_form(request.schema)
        parameters = _parameters(model, request, form)
        told = _told(request)
        if listener is None:
            response = await self._whole(model, told, parameters)
            if (
                not response.parts
                and response.provider_response_id is None
                and response.finish_reason is None
            ):
                raise ModelError(self.name, because="the server's JSON is not a reply", transient=False)
        else:
            live = form is None or (parameters.output_mode == "native" and not form.boxed)
            response = await self._streamed(model, told, parameters, listener if live else None)
        if not _said_how_it_ended(response, model):
            raise self._ended_early()
        reply = reply_from(_raw(response), form=form, cost=_cost(response))
        if listener is not None and not listener.heard and reply.text:
            listener(reply.text)
        return reply

    async def _whole(
        self, model: Model[Any], told: list[ModelMessage], parameters: ModelRequestParameters
    ) -> ModelResponse:
        from pydantic_ai.direct import model_request

        settings = self._understood_by(model)
        return await model_request(model, told, model_settings=settings, model_request_parameters=parameters)

    async def _streamed(
        self,
        model: Model[Any],
        told: list[ModelMessage],
        parameters: ModelRequestParameters,
        listener: _Listener | None,
    ) -> ModelResponse:
        from pydantic_ai.direct import model_request_stream

        settings = self._understood_by(model)
        opened = model_request_stream(
            model, told, model_settings=settings, model_request_parameters=parameters
        )
        async with opened as stream:
            async for event in stream:
                piece = _piece(event)
                if piece and listener is not None:
                    listener(writable(piece))
        response = stream.get()
        if _is_assumed(response) and model.system not in _NO_FINISH_REASON:
            raise self._ended_early()
        return response

    def _understood_by(self, model: Model[Any]) -> ModelSettings:
        """The settings `model` takes. It would warn about the others, which cost it nothing to ignore."""
        understood: ModelSettings = {}
        for key, value in self._settings.items():
            if key not in model.unsupported_settings:
                understood[key] = value  # type: ignore[literal-required]  # Which keys there are, the provider says.
        return understood

    def _ended_early(self) -> ModelError:
        return ModelError(self.name, because="the stream ended before the reply did", transient=True)


class _Listener:
    """`on_text`, remembering whether it was called and what it raised."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self.heard = False
        self.raised: Exception | None = None

    def __call__(self, piece: str) -> None:
        self.heard = True
        try:
            self._on_text(piece)
        except Exception as error:
            self.raised = error
            raise


def _imported(make: Callable[[], Model[Any]]) -> Model[Any]:
    """What `make` returns. This runs in a thread, a request does not, so its imports are done here too."""
    import pydantic_ai.direct  # noqa: F401

    return make()


def _told(request: ModelRequest) -> list[ModelMessage]:
    from pydantic import ValidationError
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    try:
        return ModelMessagesTypeAdapter.validate_python(conversation(request))
    except ValidationError:
        # A `raw` that another library wrote, or a later version of this one.
        return ModelMessagesTypeAdapter.validate_python(conversation(without_raw(request)))


def _parameters(model: Model[Any], request: ModelRequest, form: AnswerForm | None) -> ModelRequestParameters:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.schema)
        for tool in request.tools
    ]
    if form is None:
        return ModelRequestParameters(function_tools=tools)
    answer = ToolDefinition(
        name=ANSWER_TOOL,
        description="Gives the final answer.",
        parameters_json_schema=form.schema,
        kind="output",
    )
    return ModelRequestParameters(
        function_tools=tools,
        output_mode="native" if _has_json_mode(model, request) else "auto",
        output_object=OutputObjectDefinition(json_schema=form.schema, name="answer"),
        output_tools=[answer],
    )


def _has_json_mode(model: Model[Any], request: ModelRequest) -> bool:
    if model.system in _STRICT_WITH_LIMITS or (request.tools and model.system in _JSON_OR_TOOLS):
        return False
    return model.profile.get("supports_json_schema_output", False)


def _raw(response: ModelResponse) -> JsonObject:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    raw: JsonObject = ModelMessagesTypeAdapter.dump_python([response], mode="json", exclude_none=True)[0]
    if "@" in raw.get("provider_url", ""):
        del raw["provider_url"]  # It may hold a password.
    return raw


def _piece(event: ModelResponseStreamEvent) -> str:
    """The text an event of a stream adds."""
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

    match event:
        case PartStartEvent(part=TextPart(content=text)):
            return text
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""


def _said_how_it_ended(response: ModelResponse, model: Model[Any]) -> bool:
    """Half a reply looks like a short one otherwise, and is on the log for ever."""
    named = response.finish_reason is not None or "finish_reason" in (response.provider_details or {})
    return response.state == "complete" and (named or model.system in _NO_FINISH_REASON)


def _is_assumed(response: ModelResponse) -> bool:
    """Whether "stop" is pydantic-ai's guess for an OpenAI-compatible server that gave no reason."""
    return response.finish_reason == "stop" and "finish_reason" not in (response.provider_details or {})


def _cost(response: ModelResponse) -> float:
    """In dollars, from the prices that come with pydantic-ai; 0.0 where they do not know the model."""
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return 0.0
