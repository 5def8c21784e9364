"""A load of a store in memory, into a cache of zeros."""

from collections.abc import Callable, Iterator

import pytest
import torch

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.restore import LoadClock, StepCosts
from engine_adapters.vllm.blocks.block_filler import BlockFiller
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.identity.chunk_keys import rank_key
from engine_adapters.vllm.messages.block_span import BlockSpan
from engine_adapters.vllm.messages.orders import LoadEnd, LoadOrder
from engine_adapters.vllm.worker_side.between_forwards import BetweenForwards
from engine_adapters.vllm.worker_side.load_job import LoadJob, LoadPlace
from kvstored_client import LayerState, StateKind, StateLayout
from kvstored_client.testing import ServedRead
from tests.engine_adapters.vllm.engine_client import EngineClient
from tests.support.waiting import wait_until

LAYERS, BLOCK_TOKENS, CHUNK_BLOCKS, CHUNKS = 2, 4, 2, 6
TOKEN_BYTES = 1024
LAYOUT = StateLayout(
    model="m",
    dtype="float32",
    layers=(LayerState(StateKind.KV, TOKEN_BYTES),) * LAYERS,
    chunk_tokens=BLOCK_TOKENS * CHUNK_BLOCKS,
)
CHAIN = tuple(bytes([chunk]) * 32 for chunk in range(CHUNKS))
BLOCK_IDS = tuple(range(3, 3 + CHUNKS * CHUNK_BLOCKS))


def fill_of(chunk: int, layer: int) -> int:
    """The byte that a slice is filled with."""
    return 1 + chunk * LAYERS + layer


@pytest.fixture
def client() -> Iterator[EngineClient]:
    """A store that holds all chunks."""
    with EngineClient() as client:
        for chunk, key in enumerate(CHAIN):
            fills = [fill_of(chunk, layer) for layer in range(LAYERS)]
            client.keep(LAYOUT, rank_key(key, LAYOUT.layout_id), fills)
        yield client


class Bench:
    """A load into a cache of zeros."""

    def __init__(
        self,
        client: EngineClient,
        *,
        overtaken: bool,
        span_chunks: int = CHUNKS,
        timeout_s: float = 60.0,
        costs: StepCosts | None = None,
        copies: DeviceCopies | None = None,
    ) -> None:
        self.clock = LoadClock()
        self.store = client.store
        self.cache = {
            f"layer{layer}": torch.zeros(20, BLOCK_TOKENS, TOKEN_BYTES // 4)
            for layer in range(LAYERS)
        }
        blocks = KvBlocks(self.cache, list(self.cache), copies=copies)
        self.place = LoadPlace(
            client=client,
            layout=LAYOUT,
            filler=BlockFiller(blocks, LAYOUT, block_tokens=BLOCK_TOKENS, dtype=torch.float32),
            between=BetweenForwards(),
            span_chunks=span_chunks,
            timeout_s=timeout_s,
            costs=costs or StepCosts(None, step_tokens=64),
            clock=self.clock,
        )
        self.order = LoadOrder(
            load_id=1,
            request_id="a",
            span=BlockSpan(first_block=0, block_ids=BLOCK_IDS, chunk_blocks=CHUNK_BLOCKS),
            chain_keys=CHAIN,
            overtaken=overtaken,
        )
        self.job = LoadJob(self.order, self.place)

    def run(self, until: Callable[[], bool]) -> None:
        """Steps until something is so, and once more."""

        def look() -> bool:
            self.job.step()
            return until()

        wait_until(look)
        self.job.step()

    def pass_time(self, duration_s: float) -> None:
        """As the loader says so, of one load; the job looks at once."""
        self.clock.now_s += duration_s
        self.job.step()

    def run_until_asked(self, read_count: int = 1) -> None:
        self.run(lambda: len(self.reads) >= read_count)

    def run_to_end(self) -> LoadEnd:
        self.run(lambda: self.job.end is not None)
        assert self.job.end is not None
        return self.job.end

    @property
    def reads(self) -> list[ServedRead]:
        """Those that were asked for."""
        return self.store.reads

    def bring(self, *chunks: int) -> None:
        """Chunks of the first read arrive."""
        for chunk in chunks:
            self.reads[0].deliver(chunk)

    @property
    def filled(self) -> set[int]:
        """Blocks that hold what their chunk's slices held, in all layers."""
        filled = set()
        for place, block_id in enumerate(BLOCK_IDS):
            chunk = place // CHUNK_BLOCKS
            blocks = [cache[block_id].view(torch.uint8) for cache in self.cache.values()]
            if all(
                bool((block == fill_of(chunk, layer)).all()) for layer, block in enumerate(blocks)
            ):
                filled.add(place)
        return filled

    @property
    def written(self) -> bool:
        return any(bool(cache.any()) for cache in self.cache.values())
