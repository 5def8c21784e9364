"""``/v1/conversations``, and whether one is free."""

import asyncio

from aiohttp import web

from engine_adapters.conversation.journal import NAME_SUFFIX
from engine_adapters.server.http.service import Service
from engine_adapters.server.protocol.api_error import ApiError
from engine_adapters.server.protocol.generation import NAME_BYTES
from engine_adapters.server.protocol.replies import deleted_conversation_reply
from engine_adapters.server.running.namespace import Namespace


class Conversations:
    """Each method answers one path."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def delete(self, request: web.Request) -> web.Response:
        """``DELETE /v1/conversations/NAME``; not while a turn of it runs."""
        namespace = self._service.namespace_of(request)
        name = request.match_info["name"]
        check_free(namespace, name)
        if not (_may_be_one(name) and await self._forgotten(namespace, name)):
            raise ApiError(
                f"there is no conversation {name!r}",
                status=404,
                parameter="conversation",
                code="conversation_not_found",
            )
        return web.json_response(deleted_conversation_reply(name))

    async def _forgotten(self, namespace: Namespace, name: str) -> bool:
        """Until it is over no turn begins, whether or not its client is still there."""
        namespace.talking.add(name)
        return await asyncio.shield(self._service.spawn(self._forget(namespace, name)))

    async def _forget(self, namespace: Namespace, name: str) -> bool:
        def forget() -> bool:
            # What the saver still has of a turn that was aborted would make a sequence after this.
            namespace.saver.finish()
            return namespace.conversations.conversations.delete(namespace.stored_name(name))

        try:
            return await self._service.in_thread(forget)
        finally:
            namespace.talking.discard(name)


def check_free(namespace: Namespace, name: str) -> None:
    """Raises ApiError with 409 for a conversation that another request has now."""
    if name in namespace.talking:
        raise ApiError(
            f"another request with conversation {name!r} is not over yet; send the next one then",
            status=409,
            parameter="conversation",
            code="conversation_busy",
        )


def _may_be_one(name: str) -> bool:
    """The words of a conversation have a name as well, and must not be deleted by it."""
    return not name.endswith(NAME_SUFFIX) and len(name.encode(errors="replace")) <= NAME_BYTES
