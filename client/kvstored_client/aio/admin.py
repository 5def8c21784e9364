"""Questions to the daemon about itself, for tasks of an event loop."""

from kvstored_client.aio.sequences import AioRun
from kvstored_client.verbs import admin_verbs
from kvstored_client.verbs.admin_verbs import LISTED_CHUNKS
from kvstored_protos.v1 import admin_pb2


class AsyncAdmin:
    """As ``Admin``, awaitable."""

    def __init__(self, run: AioRun) -> None:
        self._run = run

    async def stats(self) -> admin_pb2.StatsReply:
        """Sizes and counters of the daemon."""
        return await self._run(admin_verbs.stats())

    async def list_chunks(
        self, key_prefix: str = "", limit: int = LISTED_CHUNKS
    ) -> admin_pb2.ListChunksReply:
        """Stored chunks whose hexadecimal key begins with ``key_prefix``."""
        return await self._run(admin_verbs.list_chunks(key_prefix, limit))

    async def inspect(self, key_prefix: str) -> admin_pb2.InspectReply:
        """Everything about the one chunk whose hexadecimal key begins with ``key_prefix``."""
        return await self._run(admin_verbs.inspect(key_prefix))
