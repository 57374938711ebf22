"""Whatever went wrong at a provider, as a `ModelError`.

    transient       429, 408, 409, 425, 5xx; not reachable, cut off, too slow; a body that is no JSON
    not transient   every other status, an empty account (429 too), a key that is missing;
                    well-formed JSON that is no reply

A body that is no JSON was damaged or cut on its way and may come whole the next
time. JSON that is no reply comes from something that is not the model's server.

Rule: the text holds the provider's message, shortened, on one line, with every
known secret taken out. The provider's error, which holds headers, is not chained.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Final

from turnline.core.envelope import JsonObject
from turnline.errors import ModelError, install_line

MAX_TEXT: Final = 300
"""Characters of a provider's message that are shown."""
_MISSING: Final = f"the packages that speak to models are not installed: {install_line('llm')}"
_TRANSIENT: Final = frozenset({408, 409, 425, 429})
_SERVER_ERROR: Final = 500
_ENDED_EARLY: Final = "Streamed response ended"
"""How pydantic-ai begins what it says of a stream that broke off; it has no class for it."""
_NAMES_A_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_LOOKS_SECRET: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai)-[\w*-]{6,}|\bAIza[\w-]{8,}|\bBearer\s+\S+", re.IGNORECASE
)
_SHORTEST_SECRET: Final = 8
"""A shorter value in the environment is more likely a word that happens to occur in the text."""


def failure(model: str, error: Exception, *, secrets: Collection[str] = ()) -> ModelError:
    """Return `error`, which a provider's package raised, as what it means to a round."""
    status = getattr(error, "status_code", None)
    return ModelError(
        model,
        because=without_secrets(_because(error, status), secrets),
        transient=_is_transient(error),
        status=status,
        retry_after_seconds=getattr(error, "retry_after", None),
    )


def without_secrets(text: str, secrets: Collection[str] = ()) -> str:
    """Return `text`, short and on one line, without `secrets`, the environment's, and what looks like one."""
    from_environment = (
        value
        for name, value in os.environ.items()
        if _NAMES_A_SECRET.search(name) and len(value) >= _SHORTEST_SECRET
    )
    for secret in sorted({*filter(None, secrets), *from_environment}, key=len, reverse=True):
        text = text.replace(secret, "[secret]")
    text = " ".join(_LOOKS_SECRET.sub("[secret]", text).split()).rstrip(".")
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _is_transient(error: Exception) -> bool:
    if isinstance(error, ImportError):
        return False
    # Imported here: by now a model was made, or this could not be its failure.
    import httpx2  # noqa: PLC0415
    from pydantic_ai import exceptions  # noqa: PLC0415

    match error:
        case exceptions.ModelQuotaExceededError() | exceptions.ModelRequestRejectedError():
            return False
        case exceptions.ModelHTTPError(status_code=status):
            return status in _TRANSIENT or status >= _SERVER_ERROR
        case exceptions.ModelAPIError() | httpx2.TransportError() | OSError():
            return True
        case exceptions.UnexpectedModelBehavior(message=message):
            return message.startswith(_ENDED_EARLY)
        case _:
            return False


def _because(error: Exception, status: int | None) -> str:
    if isinstance(error, ImportError):
        return _MISSING if (error.name or "").split(".")[0] == "pydantic_ai" else str(error)
    if status is not None:
        return f"the server answered {status}: {_message(getattr(error, 'body', None))}"
    text = str(getattr(error, "message", "") or error or type(error).__name__)
    # The advice that follows is pydantic-ai's, about a test model of its own.
    text = text.partition(" To try Pydantic AI")[0]
    cause = str(error.__cause__ or "")
    return f"{text} ({cause})" if cause and cause not in text else text


def _message(body: object) -> str:
    """The one sentence in an error's body that is meant for people, if it has one."""
    if isinstance(body, Mapping):
        fields: JsonObject = dict(body)
        inner = fields.get("error")
        return _message(inner) if inner else str(fields.get("message") or fields)
    return str(body or "nothing more")
