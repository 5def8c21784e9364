"""The engine of the benchmarks, with verbs that break things. Run by ``EngineProcess``."""

import os
import signal
from typing import Any

from benchmarks.vllm.engine_child import EngineChild, obey


class BreakableChild(EngineChild):
    """The verbs of tests."""

    def rank_keys(self, prompt: list[int]) -> list[str]:
        """Keys in hexadecimal under which the chunks of a prompt are stored."""
        from engine_adapters.vllm.chunk_keys import KeyChain, RequestIdentity, rank_key

        lookup = self.scheduler.connector.scheduler_side.lookup
        (layout,) = lookup.layouts
        chain = KeyChain(
            namespace=lookup._client.namespace,
            fingerprint=layout.model,
            identity=RequestIdentity(),
            chunk_tokens=layout.chunk_tokens,
        )
        return [rank_key(key, layout.layout_id).hex() for key in chain.extend(prompt)]

    def after_match(self, socket: str, delete: str = "", kill: int = 0) -> bool:
        """Between the next match and its load a chunk is deleted, or the daemon killed."""
        from kvstored_client import Client

        lookup = self.scheduler.connector.scheduler_side.lookup
        match = lookup._match

        def hooked(*arguments: Any) -> Any:
            found = match(*arguments)
            lookup._match = match
            if delete:
                with Client(socket, arena_bytes=1 << 20, strict=True) as client:
                    assert client.delete([bytes.fromhex(delete)]) == 1
            if kill:
                os.kill(kill, signal.SIGKILL)
            return found

        lookup._match = hooked
        return True

    def fill_arena(self) -> bool:
        """Takes all memory that the worker shares with the daemon."""
        self.regions = []
        client = self.worker_side._client
        size = 1 << 40
        while size >= 4096:
            if (region := client.allocate(size)) is None:
                size //= 2
            else:
                self.regions.append(region)
        return True

    def free_arena(self) -> bool:
        """Gives it back."""
        for region in self.regions:
            region.release()
        return True


if __name__ == "__main__":
    obey(BreakableChild)
