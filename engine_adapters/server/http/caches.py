"""``/v1/context_caches``."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from aiohttp import web

from engine_adapters.link.entries import Entries, Entry
from engine_adapters.link.errors import LostEntryError
from engine_adapters.server.http.prompts import Prompts
from engine_adapters.server.http.service import Service
from engine_adapters.server.http.turn import AbortedError
from engine_adapters.server.protocol.api_error import ApiError
from engine_adapters.server.protocol.cache_request import CacheRequest, read_cache_request
from engine_adapters.server.protocol.replies import Reply, cache_reply, deleted_reply, listed
from engine_adapters.server.running.answer import Answer
from engine_adapters.server.running.job import Job
from engine_adapters.server.running.namespace import Namespace


class Caches:
    """Each method answers one path."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._prompts = Prompts(service.model, service.limits)

    async def create(self, request: web.Request) -> web.Response:
        """``POST /v1/context_caches``; the states are stored when it answers."""
        namespace = self._service.namespace_of(request)
        asked = read_cache_request(await request.read())
        self._service.check_model(asked.model)
        if namespace.links is None:
            raise ApiError(
                "this model cannot link context caches, because its states hold positions"
            )
        self._service.admission.enter()
        making = _Making()
        work = self._service.spawn(self._make(namespace, asked, making))
        try:
            entry = await asyncio.shield(work)
        except asyncio.CancelledError:
            making.is_wanted = False
            if making.job is not None:
                self._service.engine.abort(making.job)
            raise
        return web.json_response(_reply(entry))

    async def show_all(self, request: web.Request) -> web.Response:
        """``GET /v1/context_caches``."""
        namespace = self._service.namespace_of(request)
        entries = await self._service.in_thread(namespace.entries.list)
        return web.json_response(listed([_reply(entry) for entry in entries]))

    async def show(self, request: web.Request) -> web.Response:
        """``GET /v1/context_caches/ID``."""
        namespace = self._service.namespace_of(request)
        entry_id = request.match_info["entry_id"]
        return web.json_response(
            _reply(await self._service.in_thread(partial(namespace.entries.get, entry_id)))
        )

    async def delete(self, request: web.Request) -> web.Response:
        """``DELETE /v1/context_caches/ID``; requests that have begun go on with it."""
        namespace = self._service.namespace_of(request)
        entry_id = request.match_info["entry_id"]

        def expire() -> None:
            # Raises for an entry of another namespace, which this one must not end. One of
            # its own whose text is lost is there all the same.
            with suppress(LostEntryError):
                namespace.entries.get(entry_id)
            namespace.entries.expire(entry_id)

        await self._service.in_thread(expire)
        return web.json_response(deleted_reply(entry_id))

    async def _make(self, namespace: Namespace, asked: CacheRequest, making: "_Making") -> Entry:
        service = self._service
        try:
            token_ids = await service.in_reader(
                partial(self._prompts.of_cache, asked.text, asked.messages)
            )
            async with namespace.making:
                found = await service.in_thread(
                    partial(_known, namespace.entries, token_ids, ttl_s=asked.ttl_s)
                )
                if not await service.in_thread(partial(namespace.has_states, token_ids)):
                    await self._compute(namespace, token_ids, making)
                return await service.in_thread(
                    partial(namespace.entries.keep, found, token_ids, ttl_s=asked.ttl_s)
                )
        finally:
            service.admission.leave()

    async def _compute(self, namespace: Namespace, token_ids: list[int], making: "_Making") -> None:
        """Computes and stores the states of an entry."""
        if not making.is_wanted:
            raise AbortedError
        answer = Answer(lambda _: "")
        making.job = Job(
            prompt=token_ids,
            new_tokens_max=1,
            listener=answer,
            saver=namespace.saver,
            conversation=namespace.entry_prompt(token_ids),
        )
        self._service.engine.submit(making.job)
        outcome = await answer.ended
        await self._service.in_thread(namespace.saver.finish)
        if outcome is None:
            raise AbortedError
        if isinstance(outcome, Exception):
            raise outcome


class _Making:
    """A context cache that is being made: its job, once there is one."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.is_wanted = True


def _known(entries: Entries, token_ids: Sequence[int], *, ttl_s: int | None) -> Entry | None:
    """The entry of these tokens, written once more if its own are lost; None for a new one.

    Raises QuotaError where a new one does not fit, before anything is computed.
    """
    return entries.look_up([token_ids], ttl_s=ttl_s)[tuple(token_ids)]


def _reply(entry: Entry) -> Reply:
    return cache_reply(
        entry.entry_id,
        token_count=len(entry.token_ids),
        created_s=entry.created_s,
        expires_s=entry.expires_s,
    )
