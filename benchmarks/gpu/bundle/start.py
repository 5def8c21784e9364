#!/usr/bin/env python3
"""Measures this machine's GPU, without a network: run [--quick] [--device cpu] [--json FILE].

All arguments are those of ``python -m benchmarks gpu``. It needs PyTorch and nothing else. What
is packed beside it is unpacked there, once.
"""

import importlib.util
import os
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHIVE = "packed.tar.xz"
PYTHON_FILE = "python-version"
UNPACKED = HERE / "unpacked"
FAILED = 1


def main() -> int:
    """Becomes the benchmark; returns 1 with a sentence where this Python cannot run it."""
    packed_for = (HERE / PYTHON_FILE).read_text(encoding="ascii").strip()
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if own != packed_for:
        sys.stderr.write(
            f"run: this is Python {own} and the bundle is for {packed_for}; start it with that "
            f"one, or pack it with make gpu-bundle GPU_PYTHON={own}\n"
        )
        return FAILED
    if importlib.util.find_spec("torch") is None:
        sys.stderr.write(f"run: {sys.executable} has no PyTorch; start this with one that has\n")
        return FAILED
    unpack()
    project = UNPACKED / "project"
    folders = [project, project / "client", project / "protos", UNPACKED / "site"]
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([*map(str, folders), *([before] if before else [])])
    words = [sys.executable, "-m", "benchmarks", "gpu", *sys.argv[1:]]
    os.execve(sys.executable, words, {**os.environ, "PYTHONPATH": path})
    return FAILED


def unpack() -> None:
    """Everything, into a folder that is there only when it is whole."""
    if UNPACKED.is_dir():
        return
    unfinished = UNPACKED.with_name("unpacked.unfinished")
    with tarfile.open(HERE / ARCHIVE) as archive:
        archive.extractall(unfinished, filter="data")
    unfinished.rename(UNPACKED)


if __name__ == "__main__":
    sys.exit(main())
