"""What the scheduler's side tells the workers with each step, and what they answer. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine_adapters.restore import TokenRange
from engine_adapters.vllm.messages.block_span import BlockSpan
from engine_adapters.vllm.messages.linked_span import LinkedSpan

NO_TOKENS = TokenRange(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOrder:
    """Complete chunks of one request, to be stored after this step's forward.

    ``chain_keys`` (32 bytes each) are those of consecutive chunks from ``first_chunk`` on,
    ``parent_key`` that of the one before, empty for the first of a request. ``block_ids`` are
    the engine's blocks of all of them, in order. ``notes`` are what engines that follow the store
    hear of each chunk; none where nobody may hear of it.
    """

    request_id: str
    first_chunk: int
    parent_key: bytes
    chain_keys: tuple[bytes, ...]
    block_ids: tuple[int, ...]
    notes: tuple[bytes, ...] = ()

    @classmethod
    def of(
        cls,
        request_id: str,
        chunks: range,
        *,
        chain_keys: Sequence[bytes],
        block_ids: Sequence[int],
        chunk_blocks: int,
    ) -> "SaveOrder":
        """Of some chunks of a request, by the keys and blocks of all of them."""
        return cls(
            request_id=request_id,
            first_chunk=chunks.start,
            parent_key=chain_keys[chunks.start - 1] if chunks.start else b"",
            chain_keys=tuple(chain_keys[chunks.start : chunks.stop]),
            block_ids=tuple(block_ids[chunks.start * chunk_blocks : chunks.stop * chunk_blocks]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """Blocks of one request that a worker fills from the store.

    ``load_id`` is never used again; ``chain_keys`` are those of ``span.chunks``. A load that is
    ``overtaken`` goes from the back while the engine computes from the front (Cake, section 4);
    any other one is waited for. One that ``is_linked`` is both: its request runs, and waits itself.
    """

    load_id: int
    request_id: str
    span: BlockSpan | LinkedSpan
    chain_keys: tuple[bytes, ...]
    overtaken: bool = False

    @property
    def is_linked(self) -> bool:
        """Whether it brings chunks of entries to a request that runs (EPIC)."""
        return isinstance(self.span, LinkedSpan)

    @property
    def is_from_end(self) -> bool:
        """Whether its last chunk comes first."""
        return self.overtaken and not self.is_linked


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOrders:
    """Orders of one step.

    ``claims``: by load, the leading chunks of the request whose blocks belong to computing from
    this step on. ``cancels``: loads whose blocks may not be written any more. ``is_idle``:
    nothing is computed in this step. ``asks_nothing``: tokens are computed, and nothing else is
    said here; a worker that has nothing under way need not look at the rest.

    ``meetings`` are loads of which every rank has a part, and which all ranks bring together.

    ``tokens`` are the positions that the step computes of the request with most of them, beside
    ``other_tokens`` of other requests; none in steps that say little of how long a prompt takes.
    """

    fingerprint: str
    is_idle: bool = False
    asks_nothing: bool = False
    saves: tuple[SaveOrder, ...] = ()
    loads: tuple[LoadOrder, ...] = ()
    claims: Mapping[int, int] = field(default_factory=dict)
    cancels: frozenset[int] = frozenset()
    meetings: tuple[int, ...] = ()
    tokens: TokenRange = NO_TOKENS
    other_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """How far some workers are with an overtaken load.

    ``workers`` of them have all chunks of the load from ``first_loaded`` on in their blocks; of a
    linked load, which ``goes_up``, all up to that one.
    """

    first_loaded: int
    workers: int = 1
    goes_up: bool = False

    def joined(self, other: "LoadProgress") -> "LoadProgress":
        """What both groups of workers have."""
        return LoadProgress(
            first_loaded=(min if self.goes_up else max)(self.first_loaded, other.first_loaded),
            workers=self.workers + other.workers,
            goes_up=self.goes_up,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEnd:
    """A load that has ended in one worker: what it brought and from where, and how long it took.

    ``lost_chunks`` are those that were found and did not come, or came too late.
    """

    load_id: int
    loaded_blocks: int
    lost_chunks: tuple[int, ...] = ()
    device_bytes: int = 0
    dram_bytes: int = 0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What workers say after a step.

    ``ends`` are loads that ended since the last report, of any worker. ``refusals`` are, by rank,
    the words of the daemon that refuses workers a session, where they are others than in the last
    report; empty for a worker that is not refused any more.
    """

    progress: Mapping[int, LoadProgress] = field(default_factory=dict)
    ends: tuple[LoadEnd, ...] = ()
    refusals: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not (self.progress or self.ends or self.refusals)

    def joined(self, other: "WorkerReport") -> "WorkerReport":
        """The report of both groups of workers."""
        progress = dict(self.progress)
        for load_id, theirs in other.progress.items():
            ours = progress.get(load_id)
            progress[load_id] = theirs if ours is None else ours.joined(theirs)
        return WorkerReport(
            progress=progress,
            ends=self.ends + other.ends,
            refusals={**self.refusals, **other.refusals},
        )
