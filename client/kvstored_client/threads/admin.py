"""Questions to the daemon about itself, for threads."""

from kvstored_client.threads.sequences import Run
from kvstored_client.verbs import admin_verbs
from kvstored_client.verbs.admin_verbs import LISTED_CHUNKS
from kvstored_protos.v1 import admin_pb2


class Admin:
    """Allowed for the daemon's own Unix user and for root. Always raises StoreError on failure."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def stats(self) -> admin_pb2.StatsReply:
        """Sizes and counters of the daemon."""
        return self._run(admin_verbs.stats())

    def list_chunks(
        self, key_prefix: str = "", limit: int = LISTED_CHUNKS
    ) -> admin_pb2.ListChunksReply:
        """Stored chunks whose hexadecimal key begins with ``key_prefix``."""
        return self._run(admin_verbs.list_chunks(key_prefix, limit))

    def inspect(self, key_prefix: str) -> admin_pb2.InspectReply:
        """Everything about the one chunk whose hexadecimal key begins with ``key_prefix``."""
        return self._run(admin_verbs.inspect(key_prefix))
