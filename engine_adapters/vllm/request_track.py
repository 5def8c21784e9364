"""What the scheduler's side knows of one request. Pure."""

from dataclasses import dataclass

from engine_adapters.vllm.chunk_keys import KeyChain, RequestIdentity
from engine_adapters.vllm.options import RestoreMode


@dataclass(slots=True, kw_only=True)
class RequestTrack:
    """State of one request from its arrival to its end. Not thread-safe.

    ``chain`` is None until the daemon has named the namespace. ``saved_chunks`` leading chunks
    are stored, are being stored, or were given up. ``tried_admission`` is the number of
    preemptions before the admission at which the store was asked last: a request asks once for
    each admission, so that a chunk that cannot be loaded is not asked for again and again.
    ``load_id`` is the load that runs, ``mode`` how it was chosen to run.
    """

    identity: RequestIdentity
    chunk_tokens: int
    chain: KeyChain | None = None
    saved_chunks: int = 0
    tried_admission: int = -1
    load_id: int | None = None
    mode: RestoreMode = RestoreMode.OFF

    def chunks_to_save(self, *, computed_tokens: int, known_tokens: int) -> range:
        """Chunks that are complete when ``computed_tokens`` are, and were not saved before.

        ``known_tokens`` bounds them: of a token that is being sampled there is no id yet.
        """
        complete = min(computed_tokens, known_tokens) // self.chunk_tokens
        return range(self.saved_chunks, max(complete, self.saved_chunks))
