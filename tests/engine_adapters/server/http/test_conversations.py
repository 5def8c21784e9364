"""Conversations over HTTP: the client sends the new turn only."""

import asyncio
import threading
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientResponse

from engine_adapters.conversation.journal import NAME_SUFFIX
from engine_adapters.runner.model.tokenizer import Tokenizer
from engine_adapters.server.http.service import WORKERS
from engine_adapters.server.protocol.generation import NAME_BYTES
from engine_adapters.server.protocol.limits import Limits
from kvstored_protos.v1.sequence_pb2 import SequenceRequest
from tests.engine_adapters.runner.memory import at
from tests.engine_adapters.server.lab import TEXT, USER, WAIT_S, Served, ServerLab
from tests.support.waiting import PATIENCE_S

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


async def leave(served: Served) -> None:
    """A client that goes away while its turn is answered, until nothing of it runs."""
    said = {**SAID, "max_tokens": 900}
    async with served.held():
        running = await served.post(CHATS, messages=[USER], **said, stream=True)
        await running.content.readany()
        running.close()
        await served.idle()


async def test_a_turn_that_nobody_waits_for_did_not_happen(lab: ServerLab) -> None:
    async with lab.serve() as served:
        await leave(served)
        first = await served.ask(CHATS, messages=[USER], **SAID)
        tokenizer = Tokenizer.from_directory(lab.directory)
        opening = tokenizer.encode(f"user: {USER['content']}\nassistant: ")
        assert first["usage"]["prompt_tokens"] == len(opening)


async def test_a_first_turn_that_was_refused_left_a_name_for_ever(lab: ServerLab) -> None:
    """Bug: it was made before the prompt was looked at; all keys together have so many names."""
    async with lab.serve(limits=Limits(prompt_tokens=5)) as served:
        status, error = await served.refused(CHATS, messages=[USER], **SAID)
        assert (status, error["code"]) == (400, "context_length_exceeded")
        assert not lab.store.sequences


async def test_a_first_turn_whose_client_went_away_left_a_name_for_ever(lab: ServerLab) -> None:
    """Bug: the store kept one for words that never came, and one for states of no turn."""
    async with lab.serve() as served:
        await leave(served)
        assert not lab.store.sequences


@pytest.mark.parametrize("name", ["talk", "a/b c?"])
async def test_a_conversation_could_not_be_deleted(lab: ServerLab, name: str) -> None:
    """Bug: its names stayed for ever. One of another key is none."""
    said = {**SAID, "conversation": name}
    async with lab.serve(keys={"one": "a", "two": "b", "three": "a"}) as served:
        first = await served.ask(CHATS, key="one", messages=[USER], **said)
        assert (await delete(served, name, key="no")).status == 401
        assert (await delete(served, name, key="two")).status == 404
        async with await delete(served, name, key="three") as response:
            assert await response.json() == {
                "id": name,
                "object": "conversation.deleted",
                "deleted": True,
            }
        assert not lab.store.sequences
        async with await delete(served, name, key="one") as response:
            error = (await response.json())["error"]
            assert (response.status, error["code"]) == (404, "conversation_not_found")
        again = await served.ask(CHATS, key="one", messages=[USER], **said)
        assert again["usage"]["prompt_tokens"] == first["usage"]["prompt_tokens"]


@pytest.mark.parametrize("ending", [NAME_SUFFIX, "x" * NAME_BYTES])
async def test_what_no_conversation_is_named_is_not_deleted(lab: ServerLab, ending: str) -> None:
    """The words of one have the name of their sequence, and longer names the store has not."""
    async with lab.serve() as served:
        await served.ask(CHATS, messages=[USER], **SAID)
        kept = set(lab.store.sequences)
        assert (await delete(served, f"talk{ending}")).status == 404
        assert set(lab.store.sequences) == kept


async def test_a_conversation_is_not_deleted_within_a_turn(lab: ServerLab) -> None:
    async with lab.serve() as served:
        said = {**SAID, "max_tokens": 900}
        async with served.held():
            running = await served.post(CHATS, messages=[USER], **said, stream=True)
            async with await delete(served, "talk") as response:
                error = (await response.json())["error"]
                assert (response.status, error["code"]) == (409, "conversation_busy")
            running.close()
            await served.idle()
        assert (await delete(served, "talk")).status == 404


async def test_no_turn_begins_while_its_conversation_is_deleted(lab: ServerLab) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def block() -> None:
        began.set()
        assert goes_on.wait(WAIT_S)

    async with lab.serve() as served:
        await served.ask(CHATS, messages=[USER], **SAID)
        lab.store.faults.before = at(SequenceRequest, block)
        deleting = asyncio.create_task(delete(served, "talk"))
        assert await asyncio.to_thread(began.wait, WAIT_S)
        status, error = await served.refused(CHATS, messages=[USER], **SAID)
        assert (status, error["code"]) == (409, "conversation_busy")
        goes_on.set()
        assert (await deleting).status == 200
        assert not lab.store.sequences


async def test_a_conversation_whose_words_were_lost_kept_its_name(lab: ServerLab) -> None:
    """Bug: each try was answered with 503, and there was no way to begin it again."""
    async with lab.serve() as served:
        first = await served.ask(CHATS, messages=[USER], **SAID)
        lab.store.chunks.clear()
        status, error = await served.refused(CHATS, messages=[USER], **SAID)
        assert (status, error["param"]) == (410, "conversation")
        assert error["code"] == "conversation_lost"
        assert (await delete(served, "talk")).status == 200
        again = await served.ask(CHATS, messages=[USER], **SAID)
        assert again["usage"]["total_tokens"] == first["usage"]["total_tokens"]


async def delete(served: Served, name: str, *, key: str = "any") -> ClientResponse:
    path = f"/v1/conversations/{quote(name, safe='')}"
    return await served.client.delete(path, headers={"Authorization": f"Bearer {key}"})


async def test_conversations_that_waited_for_a_silent_store_stopped_other_requests(
    lab: ServerLab,
) -> None:
    """Bug: text became tokens on the same threads, each of which waited for ten seconds."""
    is_open, entered = threading.Event(), threading.Semaphore(0)

    def wait() -> None:
        entered.release()
        assert is_open.wait(PATIENCE_S)

    async with lab.serve() as served:
        lab.store.faults.before = at(SequenceRequest, wait)
        talks = [
            asyncio.create_task(
                served.ask(COMPLETIONS, prompt=TEXT, **SAID | {"conversation": f"talk {number}"})
            )
            for number in range(WORKERS)
        ]
        try:
            for _ in talks:
                assert await asyncio.to_thread(entered.acquire, timeout=PATIENCE_S)
            async with asyncio.timeout(WAIT_S):
                await served.ask(COMPLETIONS, prompt=TEXT, max_tokens=1)
                await served.ask(CHATS, messages=[USER], max_tokens=1)
        finally:
            is_open.set()
        await asyncio.gather(*talks)
