"""Two tensor-parallel ranks, each in a process with a session and an arena of its own."""

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from engine_adapters.restore import CostProfile, save_profile
from engine_adapters.vllm.settings.support import CAKE_SCHEDULER, HIDDEN_WORKER
from engine_adapters.vllm.testing.engine_arguments import transfer_config
from tests.engine_adapters.runner.link.reference import DenseLlama
from tests.engine_adapters.vllm.test_engine_pic import CHILD, ENTRIES, INSIDE, METHODS, farthest
from tests.engine_adapters.vllm.warm_engine import WarmEngine
from tests.support.daemon import DaemonProcess

PROMPT_TOKENS = 330
CHUNK_TOKENS = 64
STORED = PROMPT_TOKENS // CHUNK_TOKENS * CHUNK_TOKENS
RANKS = 2
PARALLEL = {
    "module": CHILD,
    "tensor_parallel_size": RANKS,
    "distributed_executor_backend": "mp",
    "forks_ranks": True,
}
CAKE_PASSES = 3
"""Until a load is ahead of computing, which does not wait for it; tokens of each are compared."""
DROPS_MAX = 3
"""Times that prompts are asked again after a save was dropped: on a busy machine one may be late.
"""
SPIN_S = 1.5
"""A rank of vLLM that waits for a step spins for its first second."""
GENERATOR = random.Random(6)
PROMPT = [GENERATOR.randrange(4, 512) for _ in range(PROMPT_TOKENS)]


SLOW_DEVICE = CostProfile(
    model="m",
    machine="m",
    measured_at_s=1.0,
    hidden_bytes=512,
    kv_bytes=1024,
    compute_token_s=1e-4,
    project_token_s=1e-7,
    read_bytes_per_s=2e7,
)
"""Costs by which one rank would store all layers as their inputs."""


SHARED_MEMORY, NAMES = Path("/dev/shm"), ("psm_*", "sem.mp-*", "vllm_dist_*")


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    """Removes the shared memory that ranks of vLLM talk by, and do not remove themselves.

    Once for all tests, so that it begins before ``expected`` starts ranks too.
    """

    def named() -> set[Path]:
        return {path for name in NAMES for path in SHARED_MEMORY.glob(name)}

    before = named()
    yield
    inodes = {inode for maps in Path("/proc").glob("[0-9]*/maps") for inode in _mapped_inodes(maps)}
    for path in named() - before:
        # Whatever another process has is its own: by its inode, since it may have had other names.
        if path.exists() and str(path.stat().st_ino) not in inodes:
            path.unlink(missing_ok=True)


def _mapped_inodes(maps: Path) -> list[str]:
    try:
        return [line.split()[4] for line in maps.read_text(errors="replace").splitlines()]
    except OSError:
        return []


def cores_of_python(pid: int) -> list[set[int]]:
    """Where each thread of a process may run that has no name of its own, as those of Python."""
    name = Path("/proc", str(pid), "comm").read_text()
    found = []
    for thread in Path("/proc", str(pid), "task").iterdir():
        with suppress(ProcessLookupError, FileNotFoundError):
            if (thread / "comm").read_text() == name:
                found.append(os.sched_getaffinity(int(thread.name)))
    return found


def until_saved(
    engine: WarmEngine, prompts: Sequence[list[int]], token_count: int = STORED
) -> None:
    """Takes steps until everything is stored, since what the workers count comes with steps.

    Bug: with one step after the other the ranks spun on both cores for the daemon's whole
    deadline, so that every save was dropped, and this waited for them for ever.
    """
    dropped, drops = 0.0, 0
    while (saved := engine.counted("saved_tokens")) < token_count:
        if (now_dropped := engine.counted("dropped_saves")) > dropped:
            dropped, drops = now_dropped, drops + 1
            assert drops <= DROPS_MAX, f"{saved:g} tokens are stored and {dropped:g} saves dropped"
            for prompt in prompts:
                engine.tokens(prompt)
        time.sleep(SPIN_S)
        engine.generate([4], max_tokens=1)


@pytest.fixture(scope="module", autouse=True)
def _one_core_for_each_rank() -> Iterator[None]:
    """VLLM would want a NUMA node for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
        yield


@pytest.fixture(scope="module")
def expected(
    _one_core_for_each_rank: None, heads_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[list[int]]:
    log = tmp_path_factory.mktemp("plain") / "engine.log"
    with WarmEngine(heads_model, log, **PARALLEL) as engine:
        return engine.tokens(PROMPT)


@pytest.mark.parametrize("mode", ["prefix", "cake", "hcache"])
def test_ranks_restore_their_own_heads(
    heads_model: Path,
    shared_daemon: DaemonProcess,
    expected: list[list[int]],
    tmp_path: Path,
    mode: str,
) -> None:
    save_profile(tmp_path / "costs.json", SLOW_DEVICE)
    config = transfer_config(
        shared_daemon.socket_path,
        mode=mode,
        salt=mode,
        match_timeout_ms=60_000,
        cost_profile=str(tmp_path / "costs.json"),
    )
    changes: dict[str, object] = {
        **PARALLEL,
        "max_num_batched_tokens": CHUNK_TOKENS,
        "kv_transfer_config": config,
    }
    if mode == "hcache":
        changes["worker_cls"] = HIDDEN_WORKER
    with WarmEngine(heads_model, tmp_path / "first.log", **changes) as engine:
        assert engine.ask("reconnect")
        assert engine.tokens(PROMPT) == expected
        until_saved(engine, [PROMPT])
    # Some ranks start as vLLM starts them.
    changes["forks_ranks"] = mode != "hcache"
    with WarmEngine(heads_model, tmp_path / "second.log", **changes) as engine:
        assert engine.ask("reconnect")
        for _ in range(CAKE_PASSES if mode == "cake" else 1):
            assert engine.tokens(PROMPT) == expected
            if engine.counted("restored_tokens"):
                break
        assert engine.counted("restored_tokens") > 0
        assert (engine.counted("projected_tokens") > 0) == (mode == "hcache")
        assert engine.counted("failed_loads") == 0
        blocks = engine.ask("blocks")
        assert blocks["free"] == blocks["all"]
        workers = engine.ask("ranks")
        assert len(workers) == RANKS
        # A copy has threads that compute already, which vLLM does not bind.
        for worker in () if changes["forks_ranks"] else workers:
            assert len(os.sched_getaffinity(worker)) == 1, "vLLM has bound what computes"
            unbound = [cores for cores in cores_of_python(worker) if len(cores) > 1]
            assert len(unbound) >= 2, "one loads, which starts those that read, and one saves"


def test_ranks_link_entries_at_any_position(
    heads_model: Path, shared_daemon: DaemonProcess, tmp_path: Path
) -> None:
    """Each projects whole inputs to its own heads, of which it has stored some columns."""
    config = transfer_config(
        shared_daemon.socket_path, mode="pic", salt="pic", match_timeout_ms=60_000
    )
    dense = DenseLlama(LlamaForCausalLM.from_pretrained(heads_model, dtype=torch.float32).eval())
    stored = sum(len(entry) // CHUNK_TOKENS * CHUNK_TOKENS for entry in ENTRIES[:4])
    with WarmEngine(
        heads_model,
        tmp_path / "engine.log",
        kv_transfer_config=config,
        worker_cls=HIDDEN_WORKER,
        scheduler_cls=CAKE_SCHEDULER,
        **PARALLEL,
    ) as engine:
        assert engine.ask("reconnect")
        for entry in ENTRIES[:4]:
            engine.tokens(entry)
        until_saved(engine, ENTRIES[:4], stored)
        for method, k in METHODS.items():
            answer = engine.ask("linked", max_tokens=4, link=method, **INSIDE.named)
            assert farthest(answer, dense.linked(INSIDE.parts, INSIDE.computed(k))) < 1e-4
        assert engine.counted("jumped_tokens") > 0
        assert engine.counted("failed_loads") == 0
