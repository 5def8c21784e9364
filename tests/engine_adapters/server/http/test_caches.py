"""Context caches over HTTP, and who may name them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from engine_adapters.runner.link.link_runner import LinkRequest, LinkRunner
from engine_adapters.runner.link.linked_prompt import EntryName, PromptPart
from engine_adapters.runner.model.tokenizer import Tokenizer
from engine_adapters.server.running.namespace import Namespace
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.runner.link.lab import expected_logits
from tests.engine_adapters.runner.link.reference import DenseLlama, ReferencePart
from tests.engine_adapters.server.lab import TEXT, USER, ServerLab
from tests.support.waiting import until

CACHES, CHATS = "/v1/context_caches", "/v1/chat/completions"
OTHER = "the engine asks the store for the states of the model "


def part(entry_id: str) -> dict[str, str]:
    return {"type": "context_cache", "id": entry_id}


def asking(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


async def test_a_cache_is_made_shown_and_deleted(lab: ServerLab) -> None:
    async with lab.serve() as served:
        made = await served.ask(CACHES, text=TEXT, ttl_s=60)
        assert made["expires_at"] - made["created"] == 60
        assert made["tokens"] == len(Tokenizer.from_directory(lab.directory).encode(TEXT))
        again = await served.ask(CACHES, text=TEXT)
        assert (again["id"], again["expires_at"]) == (made["id"], None)
        other = await served.ask(CACHES, messages=[USER])
        response = await served.client.get(f"{CACHES}/{made['id']}")
        assert await response.json() == again
        response = await served.client.get(CACHES)
        assert {one["id"] for one in (await response.json())["data"]} == {made["id"], other["id"]}
        response = await served.client.delete(f"{CACHES}/{made['id']}")
        assert (await response.json())["deleted"] is True
        assert (await served.client.get(f"{CACHES}/{made['id']}")).status == 404


@pytest.mark.parametrize("method", ["naive", "full", "attnlink-4"])
async def test_caches_are_linked_as_the_runner_links_them(lab: ServerLab, method: str) -> None:
    tokenizer = Tokenizer.from_directory(lab.directory)
    async with lab.serve() as served:
        ids = [(await served.ask(CACHES, text=text))["id"] for text in (TEXT, OTHER)]
        question = {"type": "text", "text": "why?"}
        messages = asking(part(ids[1]), part(ids[0]), question)
        asked: dict[str, Any] = {"max_tokens": 12, "temperature": 0, "link_method": method}
        answer = await served.ask(CHATS, messages=messages, **asked)
    with (
        MemoryClient(lab.store) as client,
        LinkRunner(lab.model, client, lab.state_format, cache_tokens=400) as runner,
    ):
        parts: list[PromptPart] = [
            tokenizer.encode("user: "),
            EntryName(ids[1]),
            EntryName(ids[0]),
            tokenizer.encode("why?\nassistant: "),
        ]
        completion = runner.link(LinkRequest(parts=parts, new_tokens_max=12, method=method))
    said = answer["choices"][0]["message"]["content"]
    assert said == tokenizer.decode(completion.generated_ids)
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == completion.restore.restored_tokens
    assert bool(cached) == (method != "full")


@pytest.mark.parametrize("method", ["naive", "attnlink-4", "cacheblend-20"])
async def test_a_cache_that_was_made_after_a_sink_is_linked_so(
    lab: ServerLab, model_directory: Path, method: str
) -> None:
    """*Bug:* the server took its states as those of a plain entry: other keys, so all was computed.

    What it computed then saw no sink.
    """
    tokenizer = Tokenizer.from_directory(lab.directory)
    dense = DenseLlama(LlamaForCausalLM.from_pretrained(model_directory).eval())
    texts, sink = [tokenizer.encode(text) for text in (TEXT, OTHER)], tokenizer.encode("the store")
    with (
        MemoryClient(lab.store) as client,
        LinkRunner(lab.model, client, lab.state_format, cache_tokens=400) as runner,
    ):
        ids = runner.generate_context_cache(texts, sink_ids=sink)
    async with lab.serve() as served:
        question = {"type": "text", "text": "why?"}
        messages = asking(part(ids[1]), part(ids[0]), question)
        asked: dict[str, Any] = {"max_tokens": 6, "temperature": 0, "link_method": method}
        answer = await served.ask(CHATS, messages=messages, **asked)
    parts = [
        ReferencePart(tuple(tokenizer.encode("user: ")), False),
        ReferencePart(tuple(texts[1]), True, tuple(sink)),
        ReferencePart(tuple(texts[0]), True, tuple(sink)),
        ReferencePart(tuple(tokenizer.encode("why?\nassistant: ")), False),
    ]
    new_ids: list[int] = []
    for _ in range(6):
        new_ids.append(int(expected_logits(dense, parts, method, new_ids).argmax()))
    assert answer["choices"][0]["message"]["content"] == tokenizer.decode(new_ids)
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached


async def test_a_namespace_knows_its_own_caches_only(lab: ServerLab) -> None:
    async with lab.serve(keys={"one": "a", "two": "b", "three": "a"}) as served:
        made = await served.ask(CACHES, key="one", text=TEXT)
        messages = asking(part(made["id"]), {"type": "text", "text": "why?"})
        await served.ask(CHATS, key="three", messages=messages, max_tokens=2)
        status, error = await served.refused(CHATS, key="two", messages=messages)
        assert (status, error["code"]) == (404, "context_cache_not_found")
        headers = {"Authorization": "Bearer two"}
        for method in ("get", "delete"):
            response = await served.client.request(
                method, f"{CACHES}/{made['id']}", headers=headers
            )
            assert response.status == 404
        assert (await served.ask(CACHES, key="three", text=TEXT))["id"] == made["id"]
        theirs = await served.ask(CACHES, key="two", text=TEXT)
        assert theirs["id"] != made["id"]
        response = await served.client.get(CACHES, headers=headers)
        assert [one["id"] for one in (await response.json())["data"]] == [theirs["id"]]


async def test_a_cache_that_is_deleted_is_over_for_later_requests_only(lab: ServerLab) -> None:
    """One that waits for its turn goes on with it, and loads its states."""
    async with lab.serve(running_max=1) as served:
        made = await served.ask(CACHES, text=TEXT)
        asked: dict[str, Any] = {
            "messages": asking(part(made["id"]), {"type": "text", "text": "why?"}),
            "max_tokens": 8,
            "temperature": 0,
        }
        expected = await served.ask(CHATS, **asked)
        async with served.held():
            running = await served.post(CHATS, messages=[USER], max_tokens=900, stream=True)
            waiting = asyncio.create_task(served.ask(CHATS, **asked))
            await until(lambda: len(served.service.engine._jobs) == 2)
            assert (await served.client.delete(f"{CACHES}/{made['id']}")).status == 200
            status, error = await served.refused(CHATS, **asked)
            assert (status, error["code"]) == (404, "context_cache_not_found")
            assert not waiting.done()
        running.close()
        answer = await waiting
        assert answer["choices"] == expected["choices"]
        assert answer["usage"] == expected["usage"]
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"]


async def test_a_cache_whose_text_was_lost_was_lost_for_good(lab: ServerLab) -> None:
    """Bug: who sent the text once more, as the error says, got the same error, for ever."""
    async with lab.serve() as served:
        made = await served.ask(CACHES, text=TEXT)
        lose_text(lab, made["id"])
        response = await served.client.get(f"{CACHES}/{made['id']}")
        assert response.status == 410
        again = await served.ask(CACHES, text=TEXT, ttl_s=60)
        assert again["id"] == made["id"]
        messages = asking(part(made["id"]), {"type": "text", "text": "why?"})
        answer = await served.ask(CHATS, messages=messages, max_tokens=2)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        lose_text(lab, made["id"])
        assert (await served.client.delete(f"{CACHES}/{made['id']}")).status == 200
        assert (await served.client.get(f"{CACHES}/{made['id']}")).status == 404
        assert (await served.client.delete(f"{CACHES}/{made['id']}")).status == 404


async def test_a_cache_that_ended_while_it_was_made_again_was_none(
    lab: ServerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: who made it heard of it with 404, or, if another server had ended it, got a dead id."""
    async with lab.serve() as served:
        made = await served.ask(CACHES, text=TEXT, ttl_s=60)
        has_states = Namespace.has_states

        def end_and_look(self: Namespace, token_ids: Sequence[int]) -> bool:
            assert self.entries.expire(made["id"])
            return has_states(self, token_ids)

        with monkeypatch.context() as ending:
            ending.setattr(Namespace, "has_states", end_and_look)
            again = await served.ask(CACHES, text=TEXT, ttl_s=120)
        assert again["id"] != made["id"]
        assert (await served.client.get(f"{CACHES}/{again['id']}")).status == 200


def lose_text(lab: ServerLab, entry_id: str) -> None:
    """The store evicts the token ids of an entry, and keeps its states."""
    with MemoryClient(lab.store) as client:
        (name,) = [name for name in client.sequences.list() if name.startswith(entry_id)]
        info = client.sequences.get(name)
    assert info is not None
    for key in (*info.keys, info.tail_key):
        lab.store.chunks.pop(key, None)


async def test_a_cache_has_no_caches_in_it(lab: ServerLab) -> None:
    async with lab.serve() as served:
        made = await served.ask(CACHES, text=TEXT)
        status, error = await served.refused(CACHES, messages=asking(part(made["id"])))
        assert (status, error["param"]) == (400, "messages")
