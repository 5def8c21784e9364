"""What is answered with an error."""

from typing import Any

import pytest

from engine_adapters.runner.link.linked_prompt import LinkStore
from engine_adapters.server.http.prompts import CACHE_PARTS_MAX
from engine_adapters.server.protocol.limits import Limits
from tests.engine_adapters.server.lab import TEXT, USER, ServerLab

COMPLETIONS, CHATS, CACHES = "/v1/completions", "/v1/chat/completions", "/v1/context_caches"


async def test_bad_requests_name_the_parameter(lab: ServerLab) -> None:
    ended = {"messages": [USER], "conversation": "a/tokens"}
    async with lab.serve(limits=Limits(prompt_tokens=100)) as served:
        for path, fields, parameter in (
            (COMPLETIONS, {"prompt": TEXT, "top_k": 3}, "top_k"),
            (COMPLETIONS, {"prompt": [1] * 101}, "prompt"),
            (COMPLETIONS, {"prompt": [1], "max_tokens": 1024}, "prompt"),
            (CHATS, {"messages": []}, "messages"),
            (CHATS, ended, "conversation"),
            (CACHES, {"text": TEXT, "name": "x"}, "name"),
        ):
            status, error = await served.refused(path, **fields)
            assert (status, error["param"]) == (400, parameter), error
            assert error["type"] == "invalid_request_error"


async def test_half_an_emoji_is_refused(lab: ServerLab) -> None:
    half = "a\ud83d"
    talk = {"messages": [USER], "conversation": half}
    async with lab.serve() as served:
        for path, fields, parameter in (
            (COMPLETIONS, {"prompt": half}, "prompt"),
            (COMPLETIONS, {"prompt": TEXT, "stop": [half]}, "stop"),
            (CHATS, {"messages": [{"role": "user", "content": half}]}, "messages[0].content"),
            (CHATS, talk, "conversation"),
            (CACHES, {"text": half}, "text"),
        ):
            status, error = await served.refused(path, **fields)
            assert (status, error["param"]) == (400, parameter), error


async def test_one_cache_named_often_took_all_memory(
    lab: ServerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the prompt was put together first, then found to be too long."""
    async with lab.serve(limits=Limits(prompt_tokens=100)) as served:
        made = await served.ask(CACHES, text=TEXT)
        monkeypatch.setattr(LinkStore, "prompt", None)
        for count, words in ((100, "exceed the limit of 100"), (CACHE_PARTS_MAX + 1, "at most")):
            content = [{"type": "context_cache", "id": made["id"]}] * count
            status, error = await served.refused(
                CHATS, messages=[{"role": "user", "content": content}], max_tokens=2
            )
            assert (status, error["param"]) == (400, "messages")
            assert words in error["message"]


async def test_an_unknown_token_is_refused(lab: ServerLab) -> None:
    async with lab.serve() as served:
        status, error = await served.refused(COMPLETIONS, prompt=[5000])
        assert status == 400
        assert "token id" in error["message"]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer no"}, {"Authorization": "one"}])
async def test_without_a_known_key_nothing_is_answered(lab: ServerLab, headers: Any) -> None:
    async with lab.serve(keys={"one": "a"}) as served:
        for path in ("/v1/models", CACHES):
            response = await served.client.get(path, headers=headers)
            assert response.status == 401
            assert (await response.json())["error"]["code"] == "invalid_api_key"
        assert (await served.client.post(CHATS, headers=headers)).status == 401
        assert (await served.client.get("/healthz", headers=headers)).status == 200


async def test_what_is_not_there_is_404(lab: ServerLab) -> None:
    async with lab.serve() as served:
        status, error = await served.refused(COMPLETIONS, model="other", prompt="a")
        assert (status, error["code"]) == (404, "model_not_found")
        cache = [{"type": "context_cache", "id": "cc-0"}]
        status, error = await served.refused(CHATS, messages=[{"role": "user", "content": cache}])
        assert (status, error["code"]) == (404, "context_cache_not_found")
        assert "cc-0" in error["message"]
        for method in ("get", "delete"):
            response = await served.client.request(method, f"{CACHES}/cc-0")
            assert response.status == 404
            assert "cc-0" in (await response.json())["error"]["message"]
        response = await served.client.get("/v1/files")
        assert response.status == 404
        assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_a_method_that_a_path_has_not_is_405(lab: ServerLab) -> None:
    async with lab.serve() as served:
        response = await served.client.get(COMPLETIONS)
        assert response.status == 405
        assert response.headers["Allow"] == "POST"
        assert "error" in await response.json()


async def test_a_large_body_is_413(lab: ServerLab) -> None:
    async with lab.serve(limits=Limits(body_bytes=1000)) as served:
        status, error = await served.refused(COMPLETIONS, prompt="a" * 2000)
        assert status == 413
        assert error["type"] == "invalid_request_error"


async def test_a_full_line_is_429(lab: ServerLab) -> None:
    async with lab.serve(limits=Limits(waiting_max=1), running_max=1) as served:
        async with served.held():
            running = [
                await served.post(COMPLETIONS, prompt=TEXT, max_tokens=900, stream=True)
                for _ in range(2)
            ]
            for path, asked in ((COMPLETIONS, {"prompt": TEXT}), (CACHES, {"text": TEXT})):
                response = await served.post(path, **asked)
                assert response.status == 429
                assert int(response.headers["Retry-After"]) >= 1
                assert (await response.json())["error"]["code"] == "rate_limit_exceeded"
            for one in running:
                one.close()
            await served.idle()
        await served.ask(COMPLETIONS, prompt=TEXT, max_tokens=1)


async def test_a_conversation_has_one_turn_at_a_time(lab: ServerLab) -> None:
    async with lab.serve() as served:
        asked: dict[str, Any] = {"messages": [USER], "conversation": "talk", "max_tokens": 900}
        async with served.held():
            running = await served.post(CHATS, stream=True, **asked)
            status, error = await served.refused(CHATS, **asked)
            assert (status, error["code"]) == (409, "conversation_busy")
            running.close()
            await served.idle()
        await served.ask(CHATS, **{**asked, "max_tokens": 1})


async def test_a_store_that_is_gone_is_503_where_it_is_needed(lab: ServerLab) -> None:
    async with lab.serve() as served:
        lab.store.kill()
        status, _ = await served.refused(CHATS, messages=[USER], conversation="talk")
        assert status == 503
        assert (await served.refused(CACHES, text=TEXT))[0] == 503
        await served.ask(COMPLETIONS, prompt=TEXT, max_tokens=2)
