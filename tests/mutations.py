"""Breaks eighteen promises on purpose and shows which test of ``make test`` fails for each.

``python -m tests.mutations [NAME ...]`` copies the committed tree, changes one place in the copy,
runs the tests that ``make test`` has in the folders of that place, and prints the first that
failed. It exits with 1 where a change went unseen.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.stages import ONE_THREAD, ROOT, SMALL

IMPORTED = ("", "client", "protos")
"""Folders of the copy that Python looks into first."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """``old`` in the file ``path`` becomes ``new``; tests below ``folders`` should fail."""

    name: str
    path: str
    old: str
    new: str
    folders: tuple[str, ...]


MUTATIONS = (
    Mutation(
        "commit order: the index before the flush of the devices",
        "kvstored/store/write/committer.py",
        "            failed = self._flush(",
        "            self._index.apply(IndexChange.merged([each.change for each in group]))\n"
        "            failed = self._flush(",
        ("tests/kvstored/store", "tests/faults/power"),
    ),
    Mutation(
        "checksum on read: other bytes count as sound",
        "kvstored/store/read/landings.py",
        "        if not is_sound:\n",
        "        if not is_sound and not sums:\n",
        ("tests/kvstored/store", "tests/kvstored/tiers", "tests/faults/media"),
    ),
    Mutation(
        "extent reuse: a pinned chunk's extent is free once it is deleted",
        "kvstored/store/write/chunk_pins.py",
        "if chunk in self._pins:\n                self._held_extents",
        "if chunk in self._pins and not extent:\n                self._held_extents",
        ("tests/kvstored/store", "tests/kvstored/tiers", "tests/faults/media"),
    ),
    Mutation(
        "planner: computing never stops before chunks that are loaded",
        "engine_adapters/restore/meeting.py",
        "if ready_s(best) < alone_s:",
        "if ready_s(best) < 0:",
        ("tests/engine_adapters/restore",),
    ),
    Mutation(
        "board: every slice is shown as resident",
        "kvstored/store/read/read_progress.py",
        "board.states[run.chunk, layers] = state",
        "board.states[run.chunk, layers] = SliceState.RESIDENT",
        ("tests/kvstored/store", "tests/kvstored/tiers", "tests/faults/media"),
    ),
    Mutation(
        "arena sealing: a client may shrink what the daemon has mapped",
        "kvstored/server/held/arena.py",
        "_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL",
        "_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL",
        ("tests/kvstored/server", "tests/faults/clients"),
    ),
    Mutation(
        "vLLM block release: a cancelled load goes on to write blocks",
        "engine_adapters/vllm/worker_side/loader.py",
        "        if job is not None:\n            job.cancel()\n",
        "        if job is not None:\n            self._overtaken.pop(load_id, None)\n",
        ("tests/engine_adapters/vllm",),
    ),
    Mutation(
        "copies to a device: a save is put before its copy is over",
        "engine_adapters/vllm/worker_side/saver.py",
        "        snapshot.landing.wait()\n        for run",
        "        for run",
        ("tests/engine_adapters/vllm",),
    ),
    Mutation(
        "copies to a device: a forward overwrites layer inputs that are copied",
        "engine_adapters/vllm/worker_side/staged_forwards.py",
        "        self._landing.hold_engine()\n",
        "        self._slots = None\n",
        ("tests/engine_adapters/vllm",),
    ),
    Mutation(
        "copies to a device: a forward that was missed leaves older rows",
        "engine_adapters/vllm/worker_side/staged_forwards.py",
        "    def _miss(self, why: str) -> None:\n        self._rows.use(BlockRows.clear)\n",
        "    def _miss(self, why: str) -> None:\n",
        ("tests/engine_adapters/vllm",),
    ),
    Mutation(
        "copies to a device: rows are appended before their copies are over",
        "engine_adapters/runner/save/append_queue.py",
        "            snapshot.settle()\n            items",
        "            items",
        ("tests/engine_adapters/runner/save",),
    ),
    Mutation(
        "copies to a device: values are saved where keys belong",
        "engine_adapters/runner/save/snapshot.py",
        "else (keys, values)",
        "else (values, keys)",
        ("tests/engine_adapters/runner/save",),
    ),
    Mutation(
        "copies to a device: what goes out is copied by the stream for what comes in",
        "engine_adapters/device_copies/cuda_copies.py",
        "        with torch.cuda.stream(self._outward):\n            target",
        "        with torch.cuda.stream(self._inward):\n            target",
        ("tests/engine_adapters/device_copies",),
    ),
    Mutation(
        "copies to a device: a region is given back while it is copied",
        "engine_adapters/vllm/worker_side/load_job.py",
        "if all(flight.span is not span for flight in self._flights):",
        "if span is not None:",
        ("tests/engine_adapters/vllm",),
    ),
    Mutation(
        "copies to a device: a span of a restoration goes back while it is copied",
        "engine_adapters/runner/restore/layer_loader.py",
        "        span.uses.add(landing)\n",
        "",
        ("tests/engine_adapters/runner/restore",),
    ),
    Mutation(
        "copies to a device: steps that go together have each other's rows",
        "engine_adapters/runner/save/held_steps.py",
        "first_row=part.first_row * count",
        "first_row=part.first_row",
        ("tests/engine_adapters/runner/save",),
    ),
    Mutation(
        "linked prompts of vLLM: others take their blocks from the prefix cache",
        "engine_adapters/vllm/scheduler_side/links.py",
        "        self.set_apart(request)\n",
        "",
        ("tests/engine_adapters/vllm/scheduler_side",),
    ),
    Mutation(
        "linked prompts of vLLM: a chunk begins where its first block does",
        "engine_adapters/vllm/messages/linked_span.py",
        "        first = self.first_tokens[chunk]\n",
        "        first = self.first_tokens[chunk] // self.block_tokens * self.block_tokens\n",
        ("tests/engine_adapters/vllm",),
    ),
)


def failed_tests(mutation: Mutation, copy: Path) -> list[str]:
    """Tests that fail in ``copy`` with the mutation, of which pytest stops at the first."""
    path = copy / mutation.path
    text = path.read_text()
    if text.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.path} has not exactly one place for: {mutation.name}")
    path.write_text(text.replace(mutation.old, mutation.new))
    environment = {
        **os.environ,
        **ONE_THREAD,
        "PYTHONPATH": os.pathsep.join(str(copy / folder) for folder in IMPORTED),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "--dist", "loadgroup"]
    command += ["-p", "no:cacheprovider", "-m", SMALL, *mutation.folders]
    done = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    path.write_text(text)
    marks = ("FAILED ", "ERROR ")
    return [line for line in done.stdout.splitlines() if line.startswith(marks)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Tries every mutation whose name begins with one of ``arguments``, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of names; all of them by default")
    names = tuple(parser.parse_args(arguments).names)
    unseen = 0
    with tempfile.TemporaryDirectory(prefix="kvstored-mutations-") as folder:
        copy = Path(folder, "copy")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(copy)], check=True)
        for mutation in MUTATIONS:
            if names and not mutation.name.startswith(names):
                continue
            failed = failed_tests(mutation, copy)
            unseen += not failed
            sys.stdout.write(f"{mutation.name}\n  {failed[0] if failed else 'NOT SEEN'}\n")
            sys.stdout.flush()
    return int(unseen > 0)


if __name__ == "__main__":
    sys.exit(main())
