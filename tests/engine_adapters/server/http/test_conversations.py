"""Conversations over HTTP: the client sends the new turn only."""

from typing import Any

from engine_adapters.runner.model.tokenizer import Tokenizer
from tests.engine_adapters.server.lab import TEXT, USER, ServerLab

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SAID: dict[str, Any] = {"conversation": "talk", "max_tokens": 12, "temperature": 0}


async def test_a_turn_follows_all_that_was_said(lab: ServerLab) -> None:
    """Also with another process; the same tokens as one prompt give the same answer."""
    tokenizer = Tokenizer.from_directory(lab.directory)
    async with lab.serve() as served:
        first = await served.ask(CHATS, messages=[USER], **SAID)
    async with lab.serve() as served:
        again = {"role": "user", "content": "and why?"}
        second = await served.ask(CHATS, messages=[again], **SAID)
        usage = second["usage"]
        turn = tokenizer.encode("\nuser: and why?\nassistant: ")
        assert usage["prompt_tokens"] == first["usage"]["total_tokens"] + len(turn)
        # All but the last token of the first turn, which was only sampled.
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert cached == first["usage"]["total_tokens"] - 1
        (talk,) = served.service._namespaces.values()
        (name,) = talk.conversations.conversations.names()
        told = talk.conversations.conversations.open(name).token_ids
        whole = await served.ask(
            COMPLETIONS, prompt=list(told[: usage["prompt_tokens"]]), max_tokens=12, temperature=0
        )
        assert whole["choices"][0]["text"] == second["choices"][0]["message"]["content"]


async def test_a_conversation_of_plain_text(lab: ServerLab) -> None:
    async with lab.serve() as served:
        first = await served.ask(COMPLETIONS, prompt=TEXT, **SAID)
        second = await served.ask(COMPLETIONS, prompt=TEXT, **SAID)
        assert second["usage"]["prompt_tokens"] > first["usage"]["total_tokens"]


async def test_each_namespace_has_its_own(lab: ServerLab) -> None:
    async with lab.serve(keys={"one": "a", "two": "b"}) as served:
        first = await served.ask(CHATS, key="one", messages=[USER], **SAID)
        theirs = await served.ask(CHATS, key="two", messages=[USER], **SAID)
        assert theirs["usage"] == first["usage"]


async def test_a_turn_that_nobody_waits_for_did_not_happen(lab: ServerLab) -> None:
    async with lab.serve() as served:
        running = await served.post(
            CHATS, messages=[USER], **{**SAID, "max_tokens": 900}, stream=True
        )
        await running.content.readany()
        running.close()
        await served.idle()
        first = await served.ask(CHATS, messages=[USER], **SAID)
        tokenizer = Tokenizer.from_directory(lab.directory)
        opening = tokenizer.encode(f"user: {USER['content']}\nassistant: ")
        assert first["usage"]["prompt_tokens"] == len(opening)
