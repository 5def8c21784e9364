"""Clients that go away leave nothing behind, and change nobody's tokens."""

import asyncio
import random
from typing import Any

from tests.engine_adapters.server.lab import TEXT, USER, Served, ServerLab, events_of, text_of
from tests.support import labs, seeds
from tests.support.scale import Scale

COMPLETIONS, CHATS, CACHES = "/v1/completions", "/v1/chat/completions", "/v1/context_caches"
WAIT_S_MAX = 0.05


def requests_of(entry_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Each is sampled with its own seed, so that any token of another's would show."""
    cache = {"type": "context_cache", "id": entry_id}
    linked = [{"role": "user", "content": [cache, {"type": "text", "text": "why?"}]}]
    asked: list[tuple[str, dict[str, Any]]] = [
        (COMPLETIONS, {"prompt": TEXT * 2}),
        (COMPLETIONS, {"prompt": list(range(60))}),
        (CHATS, {"messages": [USER]}),
        (CHATS, {"messages": linked}),
    ]
    return [(path, {"max_tokens": 24, "seed": 5, **fields}) for path, fields in asked]


@labs.DISCONNECTS.scales("scale")
async def test_nothing_stays_of_clients_that_go_away(lab: ServerLab, scale: Scale) -> None:
    choices = random.Random(seeds.seed())
    left, count = labs.DISCONNECTS.size(scale), labs.CLIENTS_AT_ONCE.size(scale)
    async with lab.serve() as served:
        asked = requests_of((await served.ask(CACHES, text=TEXT))["id"])
        expected = [await said(served, path, fields) for path, fields in asked]
        answered = 0

        async def one_client(number: int) -> None:
            nonlocal left, answered
            while left > 0:
                path, fields = asked[choices.randrange(len(asked))]
                left -= 1
                if choices.random() < 0.25:
                    name = f"talk {number}"
                    path, fields = CHATS, {**asked[2][1], "conversation": name, "max_tokens": 200}
                await go_away(served, path, fields, choices)
                kept = choices.randrange(len(asked))
                assert await said(served, *asked[kept]) == expected[kept]
                answered += 1

        await asyncio.gather(*(one_client(number) for number in range(count)))
        assert answered >= labs.DISCONNECTS.size(scale)
        # Whatever clients sent before they went has arrived by then.
        assert await said(served, *asked[0]) == expected[0]
        await served.idle()
        (namespace,) = served.service._namespaces.values()
        assert not namespace.talking
    # The context of the lab looks at slots, regions, reads and leases.


async def test_a_client_that_goes_away_while_a_cache_is_made(lab: ServerLab) -> None:
    async with lab.serve() as served:
        for wait_s in (0, 0.001, 0.005, 0.01):
            await cut(served, CACHES, {"text": TEXT * 5}, wait_s)
        await served.idle()
        assert (await served.ask(CACHES, text=TEXT * 5))["tokens"] > 50


async def said(served: Served, path: str, fields: dict[str, Any]) -> str:
    response = await served.post(path, stream=True, **fields)
    assert response.status == 200, await response.text()
    return text_of(await events_of(response))


async def go_away(
    served: Served, path: str, fields: dict[str, Any], choices: random.Random
) -> None:
    """Before the answer, or within it."""
    if choices.random() < 0.5:
        await cut(served, path, fields, choices.uniform(0, WAIT_S_MAX))
        return
    response = await served.post(path, stream=True, **fields)
    if response.status == 200:
        for _ in range(choices.randrange(4)):
            await response.content.readany()
    response.close()


async def cut(served: Served, path: str, fields: dict[str, Any], wait_s: float) -> None:
    try:
        async with asyncio.timeout(wait_s):
            response = await served.post(path, **fields)
            await response.read()
    except TimeoutError:
        return
