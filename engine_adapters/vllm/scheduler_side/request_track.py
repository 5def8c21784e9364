"""What the scheduler's side knows of one request. Pure."""

from dataclasses import dataclass

from engine_adapters.vllm.identity.chunk_keys import KeyChain, RequestIdentity
from engine_adapters.vllm.messages.engine_request import EngineRequest
from engine_adapters.vllm.scheduler_side.found import Found, Question
from engine_adapters.vllm.scheduler_side.linking import Linking
from engine_adapters.vllm.scheduler_side.overtaking import Overtaking
from engine_adapters.vllm.scheduler_side.running_load import RunningLoad


@dataclass(slots=True, kw_only=True)
class RequestTrack:
    """State of one request from its arrival to its end. Not thread-safe.

    ``chain`` is None until the daemon has named the namespace. ``saved_chunks`` leading chunks
    are stored, are being stored, or were given up. ``tried_admission`` is the number of
    preemptions before the admission at which the store was asked last: a request asks once for
    each admission, so that a chunk that cannot be loaded is not asked for again and again.

    ``question`` is on its way to the store; ``found`` is an answer that was not used yet, with its
    leases. ``load`` is the load that may write to the request's blocks. ``overtaking`` holds both
    pointers of a request that runs while it is loaded, until it has jumped, is preempted or ends.
    A request with a ``linking`` saves nothing: its states depend on what it was linked with.
    """

    request: EngineRequest
    identity: RequestIdentity
    chunk_tokens: int
    chain: KeyChain | None = None
    saved_chunks: int = 0
    tried_admission: int = -1
    question: Question | None = None
    found: Found | None = None
    load: RunningLoad | None = None
    overtaking: Overtaking | None = None
    linking: Linking | None = None

    def chunks_to_save(self, *, computed_tokens: int, known_tokens: int) -> range:
        """Chunks that are complete when ``computed_tokens`` are, and were not saved before.

        ``known_tokens`` bounds them: of a token that is being sampled there is no id yet.
        """
        complete = min(computed_tokens, known_tokens) // self.chunk_tokens
        return range(self.saved_chunks, max(complete, self.saved_chunks))

    def has_new_chunk(self, computed_tokens: int) -> bool:
        """Whether a chunk that was not saved is complete when ``computed_tokens`` are."""
        return self.linking is None and computed_tokens // self.chunk_tokens > self.saved_chunks

    def is_past_loading(self, computed_tokens: int) -> bool:
        """Whether a load that was overtaken has ended, and cannot be jumped to any more."""
        if self.load is None or self.load.workers_left or self.overtaking is None:
            return False
        return computed_tokens >= self.overtaking.stop_token

    def lose(self, chunks: tuple[int, ...]) -> None:
        """Chunks that were found did not come: they are computed, and worth storing again."""
        self.saved_chunks = min(self.saved_chunks, *chunks)
