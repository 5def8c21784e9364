"""A server over a real engine with a tiny model, and a store in memory."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from engine_adapters.server.api_keys import ApiKeys
from engine_adapters.server.http.application import make_application
from engine_adapters.server.http.service import Service
from engine_adapters.server.opened import EngineOptions, opened
from engine_adapters.server.protocol.limits import Limits
from engine_adapters.server.running.namespace import Namespace
from kvstored_client.testing import MemoryClient, MemoryStore
from tests.engine_adapters.runner.memory import check_released, make_store
from tests.support.waiting import PATIENCE_S

TEXT = "the store keeps the states of a model, and the engine asks for them again and again "
POSITIONS = 1024
CHUNK_TOKENS = 8
WAIT_S = 20.0
HELD_STEP_S = 0.002

USER = {"role": "user", "content": "what does the store keep?"}


@dataclass
class Served:
    """A server that runs, and a client of it."""

    client: TestClient[Any, Any]
    service: Service

    async def ask(self, path: str, *, key: str | None = None, **fields: Any) -> Any:
        """The object that a request is answered with; any status but 200 is an error."""
        async with await self.post(path, key=key, **fields) as response:
            answer = await response.json()
            assert response.status == 200, answer
            return answer

    async def refused(self, path: str, *, key: str | None = None, **fields: Any) -> Any:
        """The status and the error of a request that is refused."""
        async with await self.post(path, key=key, **fields) as response:
            error = (await response.json())["error"]
            assert set(error) == {"message", "type", "param", "code"}
            return response.status, error

    async def post(self, path: str, *, key: str | None = None, **fields: Any) -> ClientResponse:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return await self.client.post(path, json={"model": "tiny", **fields}, headers=headers)

    async def idle(self) -> None:
        """Waits until no request has a place; not for long."""
        deadline_s = time.monotonic() + WAIT_S
        while self.service.admission.count:
            assert time.monotonic() < deadline_s, "requests still hold something"
            await asyncio.sleep(0.005)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """A request that runs alone stays at its first tokens, however long a test takes.

        Requests come and go meanwhile, and while two of them run both go on. What waits for the end
        of one that is held raises TimeoutError in the end.
        """
        engine = self.service.engine._engine
        step = engine.step

        def held_step() -> list[Completion]:
            running = list(engine._running.values())
            is_alone = len(running) == 1 and (not engine._waiting or engine._requests_max == 1)
            if not is_alone or len(running[0].token_ids) == running[0].prompt_tokens:
                return step()
            time.sleep(HELD_STEP_S)
            return []

        with patch.object(engine, "step", held_step):
            async with asyncio.timeout(PATIENCE_S):
                yield

    def check_engine(self) -> None:
        """The engine holds nothing of any request."""
        thread = self.service.engine
        assert thread._engine._pool.free_count == thread._engine._pool.slot_count
        assert thread._engine.is_idle
        assert not thread._jobs
        assert thread._sink.request_count == 0


@dataclass
class ServerLab:
    """What servers of a test share."""

    model: Model
    directory: Path
    store: MemoryStore = field(default_factory=make_store)

    @asynccontextmanager
    async def serve(
        self,
        *,
        keys: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        running_max: int = 64,
        cache_tokens: int | None = None,
    ) -> AsyncIterator[Served]:
        """Runs a server; afterwards nothing may be held by anybody."""
        with opened(
            self.model,
            self.directory,
            self._open_namespace,
            name="tiny",
            options=EngineOptions(running_max=running_max, cache_tokens=cache_tokens),
            limits=limits or Limits(),
            keys=ApiKeys(keys or {}),
        ) as service:
            # It cancels the handler of a client that goes away, as ``serve`` does.
            server = TestServer(make_application(service))
            await server.start_server()
            async with TestClient(server) as client:
                served = Served(client, service)
                yield served
                if service.engine.is_alive:
                    await served.idle()
                    served.check_engine()
            await asyncio.get_running_loop().run_in_executor(None, service.engine.stop)
            await service.finish()
        check_released(self.store)

    @property
    def state_format(self) -> StateFormat:
        return StateFormat.of_model(self.model, "served", chunk_tokens=CHUNK_TOKENS)

    def _open_namespace(self, stack: ExitStack, name: str) -> Namespace:
        states = self.state_format
        client = stack.enter_context(MemoryClient(self.store, salt=name))
        restorer = Restorer(client, states, self.model)
        stack.callback(restorer.close)
        saver = StateSaver(client, states)
        stack.callback(saver.close)
        namespace = Namespace.open(name, self.model, client, states, restorer, saver)
        stack.callback(namespace.close)
        return namespace


async def events_of(response: ClientResponse) -> list[Any]:
    """The objects of a stream, which ends as OpenAI's do."""
    assert response.content_type == "text/event-stream"
    frames = (await response.text()).split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def text_of(events: list[Any]) -> str:
    """What a stream says."""
    choices = [choice for one in events for choice in one["choices"]]
    return "".join(
        choice["text"] if "text" in choice else choice["delta"].get("content", "")
        for choice in choices
    )
