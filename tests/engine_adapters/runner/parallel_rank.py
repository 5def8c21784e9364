"""One process of a model that runs in several; restores what the test stored."""

import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.ranks import (
    ModelShard,
    ParallelOptions,
    ParallelRestorer,
    RankGroups,
)
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, LayerState, Rotary, StateKind, StateLayout
from tests.support.waiting import PATIENCE_S

CHUNK_TOKENS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One restoration by all processes; ``kinds`` has a letter for each layer: N, H or K.

    A ``starved`` rank has an arena of 64 KiB, of which ``taken_bytes`` are in use; a
    ``detached`` one has no daemon. A ``lost`` rank gets ``lost_by`` instead of restoring, and the
    others wait ``timeout_s`` for their stores and half a second more for it.
    """

    directory: str
    kinds: str
    tensor_size: int
    stage_count: int = 1
    span_chunks: int = 1000
    starved: int | None = None
    taken_bytes: int = 48 * 1024
    detached: int | None = None
    lost: int | None = None
    lost_by: signal.Signals = signal.SIGKILL
    timeout_s: float = PATIENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What all processes do, case after case; ``folder`` gets ``result{RANK}.pt`` of each."""

    folder: Path
    socket: Path
    device: str
    tokens: list[int]
    world_size: int
    cases: list[Case]


def make_format(model: Model, kinds: str) -> StateFormat:
    """A layout with the given kinds; its name tells models of one size apart."""
    config = model.config
    states = {
        "N": LayerState(StateKind.NONE, 0),
        "H": LayerState(StateKind.HIDDEN, config.hidden_size * model.dtype.itemsize),
        "K": LayerState(
            StateKind.KV, 2 * config.kv_head_count * config.head_dim * model.dtype.itemsize
        ),
    }
    return StateFormat(
        layout=StateLayout(
            model=f"{config.family}-{config.kv_head_count}",
            dtype="float32",
            layers=tuple(states[kind] for kind in kinds),
            chunk_tokens=CHUNK_TOKENS,
            rotary=Rotary.ABSENT if model.rotary is None else Rotary.UNROTATED,
        ),
        hidden_size=config.hidden_size,
        kv_head_count=config.kv_head_count,
        head_dim=config.head_dim,
        dtype=model.dtype,
    )


def restore(task: Task, case: Case, rank: int, device: torch.device) -> dict[str, Any]:
    """This process's part of one case."""
    model = Model.from_directory(Path(case.directory), device=str(device))
    state_format = make_format(model, case.kinds)
    stage, tensor_rank = divmod(rank, case.tensor_size)
    groups = [
        distributed.new_group(list(range(first, first + case.tensor_size)))
        for first in range(0, task.world_size, case.tensor_size)
    ]
    world = distributed.group.WORLD
    assert world is not None
    shard = ModelShard.of_rank(
        layer_count=model.config.layer_count,
        kv_head_count=model.config.kv_head_count,
        tensor_rank=tensor_rank,
        tensor_size=case.tensor_size,
        stage=stage,
        stage_count=case.stage_count,
    )
    shape = (len(shard.layers), len(task.tokens), len(shard.heads), model.config.head_dim)
    keys, values = (torch.zeros(shape, device=device) for _ in range(2))
    socket = task.socket if rank != case.detached else f"{task.socket}.absent"
    arena_bytes = 64 * 1024 if rank == case.starved else 16 * 1024 * 1024
    with Client(socket, arena_bytes=arena_bytes, name=f"rank {rank}") as client:
        if rank == case.starved:
            assert client.allocate(case.taken_bytes) is not None
        restorer = ParallelRestorer(
            client,
            state_format,
            {
                layer: model.kv_projection(
                    layer, first_head=shard.heads.start, stop_head=shard.heads.stop
                )
                for layer in shard.layers
            },
            RankGroups(tensor=groups[stage], model=world),
            shard=shard,
            device=device,
            options=ParallelOptions(
                span_bytes=case.span_chunks * state_format.span_bytes(1),
                # It runs while slower processes still load their models.
                timeout_s=case.timeout_s,
                grace_s=0.5,
            ),
        )
        # Only those that are all there can be lost.
        distributed.barrier()
        if rank == case.lost:
            os.kill(os.getpid(), case.lost_by)
        report = restorer.restore(task.tokens, keys=keys, values=values)
        again = RestoreReport()
        if restorer.is_broken:
            again = restorer.restore(task.tokens, keys=keys, values=values)
    return {
        "is_broken": restorer.is_broken,
        "again": asdict(again),
        "layers": list(shard.layers),
        "heads": list(shard.heads),
        "report": asdict(report),
        "keys": keys.cpu(),
        "values": values.cpu(),
    }


def main(task: Task, rank: int) -> None:
    """The whole life of one process."""
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if task.device == "cuda":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if task.device == "cuda" else "gloo",
        init_method=f"file://{task.folder}/rendezvous",
        rank=rank,
        world_size=task.world_size,
    )
    results = [restore(task, case, rank, device) for case in task.cases]
    torch.save(results, task.folder / f"result{rank}.pt")
    if results[-1]["is_broken"]:
        # Taking leave of a process that is lost would take as long as any call.
        os._exit(0)
    distributed.destroy_process_group()
