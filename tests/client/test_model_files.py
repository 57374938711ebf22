"""Y6: files of messages reach the agent's model, those that models take."""

from __future__ import annotations

from tests.hub.scenes import closed
from turnline.agent.agent import Agent
from turnline.agent.files import File
from turnline.agent.messages import MessageFile, UserMessage
from turnline.core.graph import sequence
from turnline.testing import ScriptedModel
from turnline.turns.files import MODEL_BYTES

from .stage import stage

PNG, PDF = b"\x89PNG", b"%PDF"


async def asked(*files: File, file_bytes: int = 2 * MODEL_BYTES) -> UserMessage:
    model = ScriptedModel("done")
    async with stage(Agent("ada", config=model), file_bytes=file_bytes) as home:
        channel = await home.open(sequence(["user", "ada"]), by="user")
        await channel.send("look", parts=list(files))
        await closed(channel)
    (message,) = model.requests[0].messages
    assert isinstance(message, UserMessage)
    return message


async def test_images_and_documents_are_shown_to_the_model_and_named() -> None:
    message = await asked(File(PNG, "a.png"), File(PDF, "b.pdf"))

    assert message.files == [
        MessageFile(name="a.png", media_type="image/png", data=PNG),
        MessageFile(name="b.pdf", media_type="application/pdf", data=PDF),
    ]
    assert message.text == "look\n[file a.png (image/png, 4 bytes)]\n[file b.pdf (application/pdf, 4 bytes)]"


async def test_what_models_do_not_take_is_only_named() -> None:
    message = await asked(
        File(b"PK", "a.zip"), File(b"<svg/>", "b.svg"), File(bytes(MODEL_BYTES + 1), "c.png")
    )

    assert message.files == []
    assert [line.split()[1] for line in message.text.splitlines()[1:]] == ["a.zip", "b.svg", "c.png"]
