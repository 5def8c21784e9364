"""vLLM's own tiered offloading on a CPU engine, which it refuses as it is. Imports vLLM.

Only the copy between the engine's blocks and the host tier is ours, since the stock one is made
of CUDA streams; look-ups, the host tier and the tiers behind it are vLLM's.
"""

import queue
import threading
import time
from typing import Any

import torch
from torch import Tensor
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

IDLE_S = 0.001
"""How long a step leaves the interpreter to the copies and to the tiers while one runs."""


class HostTierWorker(OffloadingWorker):
    """Copies between blocks and chunks of the host tier in a thread, as streams would."""

    def __init__(self, caches: Any, blocks_per_chunk: int, region: Any) -> None:
        self._blocks: list[Tensor] = [
            one.tensor.view(torch.int8).view(-1, one.page_size_bytes) for one in caches.tensors
        ]
        self._chunks: list[Tensor] = [
            region.create_next_worker_view(blocks.shape[1] * blocks_per_chunk).unflatten(
                1, (blocks_per_chunk, blocks.shape[1])
            )
            for blocks in self._blocks
        ]
        self._region = region
        self._blocks_per_chunk = blocks_per_chunk
        self._orders: queue.SimpleQueue[tuple[int, bool, Any, Any]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._running: set[int] = set()
        self._results: list[Any] = []
        threading.Thread(target=self._run, name="host-tier", daemon=True).start()

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """Blocks to the host tier."""
        return self._submit(job_id, True, src_spec, dst_spec)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """The host tier to blocks."""
        return self._submit(job_id, False, dst_spec, src_spec)

    def get_finished(self) -> list[Any]:
        """Transfers that ended since the last call."""
        if self._running:
            time.sleep(IDLE_S)
        with self._changed:
            results, self._results = self._results, []
        return results

    def wait(self, job_ids: set[int]) -> None:
        """Until all of these transfers have ended."""
        with self._changed:
            self._changed.wait_for(lambda: not job_ids & self._running)

    def shutdown(self) -> None:
        """Gives the host tier's memory back."""
        self._chunks.clear()
        self._region.cleanup()

    def _submit(self, job_id: int, is_store: bool, blocks: Any, chunks: Any) -> bool:
        with self._changed:
            self._running.add(job_id)
        self._orders.put((job_id, is_store, blocks, chunks))
        return True

    def _run(self) -> None:
        while True:
            job_id, is_store, blocks, chunks = self._orders.get()
            started_s = time.perf_counter()
            byte_count = self._copy(is_store, blocks, chunks)
            with self._changed:
                self._results.append(
                    TransferResult(job_id, True, byte_count, time.perf_counter() - started_s)
                )
                self._running.discard(job_id)
                self._changed.notify_all()

    def _copy(self, is_store: bool, blocks: Any, chunks: Any) -> int:
        """One group of blocks, whose first may lie inside its chunk."""
        (first,) = blocks.block_indices
        ids = torch.from_numpy(blocks.block_ids).long()
        places = torch.arange(len(ids)) + int(first) % self._blocks_per_chunk
        rows = torch.from_numpy(chunks.block_ids).long()[places // self._blocks_per_chunk]
        parts = places % self._blocks_per_chunk
        for layer, chunk_layer in zip(self._blocks, self._chunks, strict=True):
            if is_store:
                chunk_layer[rows, parts] = layer[ids]
            else:
                layer[ids] = chunk_layer[rows, parts]
        return len(ids) * sum(layer.shape[1] for layer in self._blocks)


class CpuTieringSpec(TieringOffloadingSpec):
    """``TieringOffloadingSpec`` whose worker copies on the CPU; named by ``spec_module_path``."""

    _worker: HostTierWorker | None

    def get_worker(self, kv_caches: Any) -> HostTierWorker:
        """The worker, made at the first call."""
        if self._worker is None:
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._worker = HostTierWorker(kv_caches, self.blocks_per_chunk, region)
        return self._worker
