"""``/v1/completions`` and ``/v1/chat/completions``."""

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from engine_adapters.server.http.conversations import check_free
from engine_adapters.server.http.failures import as_api_error
from engine_adapters.server.http.prompts import Prompt, Prompts
from engine_adapters.server.http.service import Service
from engine_adapters.server.http.turn import Turn
from engine_adapters.server.protocol.chat_request import read_chat_request
from engine_adapters.server.protocol.events import DONE, event
from engine_adapters.server.protocol.generation import Generation
from engine_adapters.server.protocol.prompt_request import read_prompt_request
from engine_adapters.server.protocol.replies import AnswerHead
from engine_adapters.server.running.namespace import Namespace

ID_BYTES = 12


class Texts:
    """Each method answers one path."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._prompts = Prompts(service.model, service.limits)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """``POST /v1/completions``."""
        namespace = self._service.namespace_of(request)
        asked = read_prompt_request(await request.read(), self._service.limits)
        head = self._head("cmpl", is_chat=False)
        return await self._answer(
            request,
            namespace,
            asked.generation,
            head,
            lambda: self._prompts.of_prompt(asked, namespace),
            asks_store=asked.generation.conversation is not None,
        )

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """``POST /v1/chat/completions``."""
        namespace = self._service.namespace_of(request)
        asked = read_chat_request(await request.read(), self._service.limits)
        head = self._head("chatcmpl", is_chat=True)
        return await self._answer(
            request,
            namespace,
            asked.generation,
            head,
            lambda: self._prompts.of_chat(asked, namespace),
            asks_store=asked.generation.conversation is not None or asked.names_caches,
        )

    def _head(self, kind: str, *, is_chat: bool) -> AnswerHead:
        return AnswerHead(
            answer_id=f"{kind}-{secrets.token_hex(ID_BYTES)}",
            model=self._service.model.name,
            created_s=int(time.time()),
            is_chat=is_chat,
        )

    async def _answer(
        self,
        request: web.Request,
        namespace: Namespace,
        generation: Generation,
        head: AnswerHead,
        prepare: Callable[[], Prompt],
        *,
        asks_store: bool,
    ) -> web.StreamResponse:
        self._service.check_model(generation.model)
        in_thread = self._service.in_thread if asks_store else self._service.in_reader
        async with self._turn(namespace, generation, lambda: in_thread(prepare)) as turn:
            if generation.is_streamed:
                return await self._stream(request, turn, generation, head)
            text = "".join([piece async for piece in turn.texts])
            usage = await turn.usage()
            return web.json_response(head.whole(text, turn.reason, usage))

    @asynccontextmanager
    async def _turn(
        self, namespace: Namespace, generation: Generation, prepare: Callable[[], Awaitable[Prompt]]
    ) -> AsyncIterator[Turn]:
        """Runs a request from its admission on; aborts it where the body ends before it."""
        name = generation.conversation
        if name is not None:
            check_free(namespace, name)
        self._service.admission.enter()
        if name is not None:
            namespace.talking.add(name)
        try:
            prompt = await prepare()
            turn = Turn(self._service, namespace, prompt, generation)
        except BaseException:
            if name is not None:
                namespace.talking.discard(name)
            self._service.admission.leave()
            raise
        try:
            yield turn
        finally:
            turn.abort()

    async def _stream(
        self, request: web.Request, turn: Turn, generation: Generation, head: AnswerHead
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        first = head.first()
        if first is not None:
            await response.write(event(first))
        async for piece in turn.texts:
            await response.write(event(head.piece(piece)))
        try:
            usage = await turn.usage()
        except Exception as error:
            # The status is sent: the error is the last event.
            await response.write(event(as_api_error(error).body))
            return response
        await response.write(event(head.last(turn.reason)))
        if generation.reports_usage:
            await response.write(event(head.usage(usage)))
        await response.write(DONE)
        return response
