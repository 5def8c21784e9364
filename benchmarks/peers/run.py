"""Durable puts and cold reads of ours, of LMCache's raw engine and of fio, in turn.

All three work on files of one scratch folder that were written before. Ours are chunks of
32 slices behind a daemon, verified; the peer's are as large, in its own process without a
daemon, unverified; fio is one job at 1 MiB, 16 deep.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import fio
from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.fio import FioJob, FioOperation
from benchmarks.huge_pages import huge_pages
from benchmarks.interleave import Alternative, Group, Measured
from benchmarks.peers.peer_process import WORKER, PeerProcess
from benchmarks.peers.series import (
    FIO_READ,
    FIO_WRITE,
    ORDERS,
    PEER_PUT,
    PEER_PUT_FINDABLE,
    PEER_READ,
    PUT,
    read_name,
    series,
)
from benchmarks.peers.worker import BLOCK_BYTES, CHECKPOINT_BYTES, Task
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from benchmarks.storage.bench import PEER_DEPTH, Bench
from benchmarks.storage.evidence import Tier, require_tier
from benchmarks.storage.scale import FULL, QUICK, Scale
from benchmarks.storage.space import device_bytes, dram_bytes
from benchmarks.store_session import StoreSession
from benchmarks.workload import GB, MIB, Workload, numbered_payload
from kvstored_client import Ack, Order

PACKAGES = "lmcache==0.5.7rc2 lmcache-rust-raw-block-io==0.5.7rc2"
"""The first release of the engine that a package index has built."""
GUIDE = (
    "LMCache runs in an environment of its own: make one with `python -m venv DIR`, "
    "`DIR/bin/pip install -r benchmarks/peers/requirements.txt` and "
    f"`DIR/bin/pip install --no-deps {PACKAGES}`, and name it with --peer-python DIR/bin/python"
)
SLICE_BYTES = MIB
COLD, FRESH = 0, 1
"""The peer's sequences: one is written once and only read then, one is put again each time."""
_INDEX_AND_LOGS_BYTES = 512 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """Those that are compared, open."""

    session: StoreSession
    workload: Workload
    peer: PeerProcess
    fio_jobs: dict[FioOperation, FioJob]

    def store_cold(self) -> None:
        """Stores what is only read from then on."""
        self.session.fill_arena()
        for order in ORDERS:
            self.session.put(self.workload, self.workload.new_chunks(order), ack=Ack.DURABLE)
        self.peer.put(COLD)

    def writes(self) -> Group:
        """Puts of ours and of the peer, and fio's writes."""
        fio_write = self.fio_jobs[FioOperation.WRITE]
        putter = _Putter(self.session, self.workload)
        return [
            Alternative(run=putter.put, prepare=putter.prepare),
            Alternative(run=self._peer_put),
            Alternative(run=lambda: {FIO_WRITE: fio.run_fio(fio_write).gb_per_s}),
        ]

    def reads(self) -> Group:
        """Reads of ours in each order and of the peer, and fio's."""
        fio_read = self.fio_jobs[FioOperation.READ]
        return [
            *(self._read(order) for order in ORDERS),
            Alternative(run=self._peer_get),
            Alternative(run=lambda: {FIO_READ: fio.run_fio(fio_read).gb_per_s}),
        ]

    def _read(self, order: str) -> Alternative:
        workload = self.workload
        chunks = workload.new_chunks(order)

        def read() -> Measured:
            timing = self.session.read(workload, chunks, order=Order[order.upper()])
            require_tier(timing.report, workload.payload_bytes, Tier.DEVICES)
            self.session.check_destination(workload.payload_bytes)
            return {read_name(order): workload.payload_bytes / timing.duration_s / GB}

        return Alternative(run=read, prepare=self.session.clear_destination)

    def _peer_put(self) -> Measured:
        on_media_s, findable_s = self.peer.put(FRESH)
        gigabytes = self.workload.payload_bytes / GB
        return {PEER_PUT: gigabytes / on_media_s, PEER_PUT_FINDABLE: gigabytes / findable_s}

    def _peer_get(self) -> Measured:
        return {PEER_READ: self.workload.payload_bytes / self.peer.get(COLD) / GB}


class _Putter:
    """Puts under a new name each time; what was stored before is deleted first."""

    def __init__(self, session: StoreSession, workload: Workload) -> None:
        self._session = session
        self._workload = workload
        self._put_count = 0

    def prepare(self) -> None:
        if self._put_count:
            self._session.delete(self._workload.new_chunks(f"put {self._put_count}"))
        self._session.fill_arena()

    def put(self) -> Measured:
        self._put_count += 1
        chunks = self._workload.new_chunks(f"put {self._put_count}")
        duration_s = self._session.put(self._workload, chunks, ack=Ack.DURABLE)
        return {PUT: self._workload.payload_bytes / duration_s / GB}


def required_interpreter(interpreter: Path | None, guide: str = GUIDE) -> Path:
    """The peer's interpreter; raises BenchmarkError, with the guide, when none was named."""
    if interpreter is None:
        raise BenchmarkError(guide)
    return interpreter


def peer_file_bytes(workload: Workload) -> int:
    """What the peer's file must have: room for both sequences, in whole MiB."""
    slots_bytes = 2 * workload.chunk_count * (workload.chunk_bytes + BLOCK_BYTES)
    return -(-(CHECKPOINT_BYTES + slots_bytes) // MIB) * MIB


def measure(settings: Settings, scale: Scale, worker: Path = WORKER) -> tuple[Series, ...]:
    """Measures all sides; raises BenchmarkError."""
    interpreter = required_interpreter(settings.peer_python)
    fio.require_fio()
    workload = scale.call_workload(SLICE_BYTES)
    ours_bytes = device_bytes([workload] * (len(ORDERS) + 1), 2, scale.large_slab_bytes)
    needed_bytes = 2 * ours_bytes + peer_file_bytes(workload) + scale.call_bytes
    with ExitStack() as stack:
        stack.enter_context(huge_pages(4 * scale.call_bytes))
        folder = stack.enter_context(
            scratch_folder(settings.folder, needed_bytes + _INDEX_AND_LOGS_BYTES)
        )
        status = stack.enter_context(settings.console.status("preparing"))
        bench = Bench(
            settings=settings,
            scale=scale,
            folder=folder,
            generator=settings.random(),
            status=status.update,
        )
        peer = stack.enter_context(open_peer(bench, workload, interpreter, worker))
        settings.console.print(f"peer: {peer.description}")
        daemon = stack.enter_context(
            bench.daemon(
                "ours",
                device_bytes=ours_bytes,
                dram_bytes=dram_bytes([workload], scale.large_slab_bytes),
                arena_bytes=scale.call_bytes,
                slab_bytes=scale.large_slab_bytes,
            )
        )
        payload = numbered_payload(scale.call_bytes, settings.seed)
        session = stack.enter_context(StoreSession(daemon, payload, [workload]))
        sides = _Sides(session=session, workload=workload, peer=peer, fio_jobs=fio_jobs(bench))
        sides.store_cold()
        rates = bench.run(
            "peers",
            [sides.writes(), sides.reads()],
            rounds=scale.rounds,
            prepare=session.restart,
        )
    return series(rates)


def open_peer(bench: Bench, workload: Workload, interpreter: Path, worker: Path) -> PeerProcess:
    """The peer on a file that was really written."""
    path = bench.folder / "peer"
    fio.make_file(path, peer_file_bytes(workload))
    task = Task(
        path=str(path.resolve()),
        chunk_count=workload.chunk_count,
        chunk_bytes=workload.chunk_bytes,
        seed=bench.settings.seed,
    )
    return PeerProcess(interpreter, task, log=bench.folder / "peer.log", worker=worker)


def fio_jobs(bench: Bench) -> dict[FioOperation, FioJob]:
    """One job at 1 MiB, 16 deep, for each operation, on a file that was really written."""
    fio.make_file(bench.fio_path, bench.scale.call_bytes)
    engine = fio.best_engine(bench.fio_path)
    return {
        operation: FioJob(
            path=bench.fio_path,
            operation=operation,
            byte_count=bench.scale.call_bytes,
            request_bytes=MIB,
            depth=PEER_DEPTH,
            jobs=1,
            engine=engine,
        )
        for operation in FioOperation
    }


def run(settings: Settings) -> tuple[Series, ...]:
    """Runs the benchmark at the scale that the settings ask for."""
    return measure(settings, QUICK if settings.quick else FULL)
