"""Real processes restore their shards of a model from one daemon."""

import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Ack, Client, NewChunk, Order, Placement
from tests.engine_adapters.runner import parallel_rank
from tests.engine_adapters.runner.checkpoints import write_llama, write_opt
from tests.engine_adapters.runner.parallel_rank import CHUNK_TOKENS, Case, Task, make_format
from tests.support.daemon import DaemonProcess
from tests.support.waiting import PATIENCE_S

CHUNKS = 13
TOKENS = [(7 * n * n + 3 * n) % 97 for n in range(CHUNKS * CHUNK_TOKENS + 5)]
PAGE_BYTES = 4096
EXACT = 1e-5
PROCESSES = multiprocessing.get_context("forkserver")
"""Ranks start from a process that has imported everything, and that has no threads."""

PROCESSES.set_forkserver_preload([parallel_rank.__name__])
WRITERS: dict[str, Callable[[Path], object]] = {
    "mha": lambda path: write_llama(path, num_hidden_layers=4),
    "gqa": lambda path: write_llama(path, num_hidden_layers=4, num_key_value_heads=2),
    "opt": lambda path: write_opt(path, num_hidden_layers=4),
}

Result = dict[str, Any]


class StatesSink(NullSink):
    """Keeps all states of the one step that it sees, layer by layer."""

    def __init__(self) -> None:
        self.hidden: list[Tensor] = []
        self.kv: list[Tensor] = []

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        self.hidden.append(hidden.clone())
        self.kv.append(torch.stack([keys, values]))


@dataclass
class Laboratory:
    """A daemon with the states of ``TOKENS`` of every model, and what was computed."""

    daemon: DaemonProcess
    folder: Path
    computed: dict[str, tuple[Tensor, Tensor]]

    def directory(self, name: str) -> str:
        return str(self.folder / name)

    def store(self, name: str, kinds: str) -> StateFormat:
        """Computes the states of a model and puts them, durably."""
        model = Model.from_directory(self.folder / name)
        state_format = make_format(model, kinds)
        count = len(TOKENS)
        cache, sink = model.make_cache(count), StatesSink()
        segment = Segment(
            request_id=0, first_row=0, token_count=count, first_position=0, first_slot=0
        )
        model.forward(TOKENS, [segment], cache=cache, sink=sink, logit_rows=())
        self.computed[name] = (cache.keys, cache.values)
        layout = state_format.layout
        with Client(self.daemon.socket_path, arena_bytes="16MiB", strict=True) as client:
            keys = client.prefix_keys(layout, TOKENS)
            region = client.allocate(Placement.contiguous_bytes(layout, len(keys)))
            assert region is not None
            for chunk in range(CHUNKS):
                tokens = slice(chunk * CHUNK_TOKENS, (chunk + 1) * CHUNK_TOKENS)
                for layer, kind in enumerate(kinds):
                    place = (chunk * len(kinds) + layer) * layout.layer_stride
                    if kind == "N":
                        continue
                    shape = state_format.slice_shape(layer)
                    states = sink.hidden[layer][tokens]
                    if kind == "K":
                        states = sink.kv[layer][:, tokens]
                    region.tensor(torch.float32, shape, place).copy_(states)
            chunks = [
                NewChunk(key=key, parent_key=parent, token_count=CHUNK_TOKENS)
                for key, parent in zip(keys, [b"", *keys], strict=False)
            ]
            report = client.put(
                layout, chunks, Placement.contiguous(region, layout), ack=Ack.DURABLE
            )
            assert report.stored_count == CHUNKS
        return state_format

    def run(
        self, world_size: int, cases: Sequence[Case], device: str = "cpu"
    ) -> list[list[Result]]:
        """Starts one process for each rank; the results of every case, rank by rank."""
        folder = Path(tempfile.mkdtemp(prefix=f"run-{device}-{world_size}-", dir=self.folder))
        task = Task(
            folder=folder,
            socket=self.daemon.socket_path,
            device=device,
            tokens=TOKENS,
            world_size=world_size,
            cases=list(cases),
        )
        with ExitStack() as stack:
            ranks = [
                PROCESSES.Process(target=parallel_rank.main, args=(task, rank))
                for rank in range(world_size)
            ]
            for process in ranks:
                process.start()
                stack.callback(process.join)
                stack.callback(process.kill)
            lost = {case.lost for case in cases}
            there = [rank for rank in range(world_size) if rank not in lost]
            for rank in there:
                ranks[rank].join(PATIENCE_S)
                assert ranks[rank].exitcode == 0
        results = [torch.load(folder / f"result{rank}.pt") for rank in there]
        return [[result[number] for result in results] for number in range(len(cases))]

    def check_states(self, name: str, results: Sequence[Result], *, first_layer: int = 0) -> None:
        """Restored states equal the computed ones as far as every process reports."""
        for result in results:
            tokens = result["report"]["restored_tokens"]
            layers, heads = result["layers"], result["heads"]
            for kind, computed in zip(("keys", "values"), self.computed[name], strict=True):
                for local, layer in enumerate(layers):
                    if layer < first_layer:
                        continue
                    expected = computed[layer, :tokens][:, heads]
                    restored = result[kind][local, :tokens]
                    assert expected.std() > 0.1
                    assert (restored - expected).abs().max() < EXACT


def restored_chunks(results: Sequence[Result]) -> set[int]:
    return {result["report"]["restored_tokens"] // CHUNK_TOKENS for result in results}


def read_bytes(results: Sequence[Result], source: str) -> list[int]:
    return [result["report"][f"{source}_bytes"] for result in results]


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    folder = tmp_path_factory.mktemp("parallel")
    for name, write in WRITERS.items():
        write(folder / name)
    with DaemonProcess(folder) as daemon:
        yield Laboratory(daemon, folder, {})


def test_four_processes(laboratory: Laboratory) -> None:
    formats = [laboratory.store("mha", "HHHH"), laboratory.store("mha", "NHHK")]
    laboratory.store("mha", "NNHH")
    hidden_bytes = formats[0].layout.slice_bytes(0)
    assert hidden_bytes == PAGE_BYTES
    mha, gqa = laboratory.directory("mha"), laboratory.directory("gqa")
    laboratory.store("gqa", "HHHK")
    cases = {
        "tensor": Case(directory=mha, kinds="HHHH", tensor_size=4),
        "both": Case(directory=mha, kinds="HHHH", tensor_size=2, stage_count=2),
        "turns": Case(directory=mha, kinds="HHHH", tensor_size=4, span_chunks=1),
        "mixed": Case(directory=mha, kinds="NHHK", tensor_size=4),
        "mixed_stages": Case(directory=mha, kinds="NHHK", tensor_size=2, stage_count=2),
        "stage_without_states": Case(directory=mha, kinds="NNHH", tensor_size=2, stage_count=2),
        "few_heads": Case(directory=gqa, kinds="HHHK", tensor_size=4),
        "starved": Case(directory=mha, kinds="HHHH", tensor_size=4, starved=2),
        "cramped": Case(
            directory=mha, kinds="HHHH", tensor_size=4, starved=2, taken_bytes=16 * 1024
        ),
        "detached": Case(directory=mha, kinds="HHHH", tensor_size=4, detached=1),
    }
    outcome = dict(zip(cases, laboratory.run(4, list(cases.values())), strict=True))
    for name, case in cases.items():
        if case.starved is not None or case.detached is not None:
            continue
        assert restored_chunks(outcome[name]) == {CHUNKS}, name
        model = "gqa" if name == "few_heads" else "mha"
        laboratory.check_states(model, outcome[name], first_layer=case.kinds.count("N"))

    # The states of a chunk are read once in all. Its header page comes with every read:
    # one for each stage, and one more where the kind of the layers changes within it.
    chunk_bytes = 4 * hidden_bytes + PAGE_BYTES
    assert read_bytes(outcome["tensor"], "dram") == [n * chunk_bytes for n in (4, 3, 3, 3)]
    assert sum(read_bytes(outcome["turns"], "dram")) == CHUNKS * chunk_bytes
    stage_bytes = 2 * hidden_bytes + PAGE_BYTES
    assert read_bytes(outcome["both"], "dram") == [n * stage_bytes for n in (7, 6, 7, 6)]
    mixed_bytes = 2 * hidden_bytes + formats[1].layout.slice_bytes(3)
    for name, reads in (("mixed", 2), ("mixed_stages", 3)):
        total = sum(read_bytes(outcome[name], "dram"))
        assert total == CHUNKS * (mixed_bytes + reads * PAGE_BYTES)

    stage_bytes = 2 * hidden_bytes + PAGE_BYTES
    dram_bytes = read_bytes(outcome["stage_without_states"], "dram")
    assert dram_bytes == [0, 0, 7 * stage_bytes, 6 * stage_bytes]

    # What one process cannot read is restored by none: the chunks before its share remain.
    assert restored_chunks(outcome["starved"]) == {4 + 3}
    assert restored_chunks(outcome["cramped"]) == {4 + 3 + 1}
    for name in ("starved", "cramped"):
        laboratory.check_states("mha", outcome[name])
    assert restored_chunks(outcome["detached"]) == {0}
    assert sum(read_bytes(outcome["detached"], "dram")) == 0


def test_two_processes_read_one_copy_from_the_devices(laboratory: Laboratory) -> None:
    formats = {name: laboratory.store(name, "HHHH") for name in ("gqa", "opt")}
    laboratory.daemon.restart()
    layout = formats["gqa"].layout
    with Client(laboratory.daemon.socket_path, arena_bytes="16MiB", strict=True) as client:
        keys = client.prefix_keys(layout, TOKENS)
        region = client.allocate(Placement.contiguous_bytes(layout, len(keys)))
        assert region is not None
        placement = Placement.contiguous(region, layout)
        with client.read(layout, keys, placement, order=Order.LAYER_FIRST) as read:
            alone = read.wait(PATIENCE_S)
    assert alone.resident_prefix == CHUNKS

    gqa, opt = laboratory.directory("gqa"), laboratory.directory("opt")
    cases = {
        "tensor": Case(directory=gqa, kinds="HHHH", tensor_size=2),
        "stages": Case(directory=gqa, kinds="HHHH", tensor_size=1, stage_count=2),
        "opt": Case(directory=opt, kinds="HHHH", tensor_size=2),
    }
    outcome = dict(zip(cases, laboratory.run(2, list(cases.values())), strict=True))
    for name, results in outcome.items():
        assert restored_chunks(results) == {CHUNKS}, name
        laboratory.check_states("opt" if name == "opt" else "gqa", results)
    tensor = read_bytes(outcome["tensor"], "device")
    assert sum(tensor) == alone.device_bytes == CHUNKS * (4 + 1) * PAGE_BYTES
    assert tensor == [alone.device_bytes * n // CHUNKS for n in (7, 6)]


def test_a_lost_process_left_the_others_in_a_collective_call_for_half_an_hour(
    laboratory: Laboratory,
) -> None:
    """One that died and one that hangs: nothing is raised, and nobody waits for longer again."""
    laboratory.store("mha", "KHHK")
    for lost_by in (signal.SIGKILL, signal.SIGSTOP):
        case = Case(
            directory=laboratory.directory("mha"),
            kinds="KHHK",
            tensor_size=4,
            lost=1,
            lost_by=lost_by,
            timeout_s=0.5,
        )
        (results,) = laboratory.run(4, [case])
        assert len(results) == 3
        for result in results:
            assert result["is_broken"]
            assert result["report"]["restored_tokens"] == 0
            assert result["again"] == asdict(RestoreReport())


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_cuda_devices(world_size: int, laboratory: Laboratory) -> None:
    if torch.cuda.device_count() < world_size:
        pytest.skip(f"needs {world_size} CUDA devices, one for each process")
    laboratory.store("opt", "HHKK")
    laboratory.store("mha", "HHKH")
    cases = {
        "opt": Case(directory=laboratory.directory("opt"), kinds="HHKK", tensor_size=world_size),
        "mha": Case(directory=laboratory.directory("mha"), kinds="HHKH", tensor_size=world_size),
    }
    outcome = laboratory.run(world_size, list(cases.values()), device="cuda")
    for name, results in zip(cases, outcome, strict=True):
        assert restored_chunks(results) == {CHUNKS}
        laboratory.check_states(name, results)
