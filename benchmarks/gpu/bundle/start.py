#!/usr/bin/env python3
"""Measures this machine's GPU, without a network: run [--quick] [--device cpu] [--json FILE].

All arguments are those of ``python -m benchmarks gpu``. It needs PyTorch and nothing else. What
is packed beside it is unpacked there, once; another archive in its place is unpacked again.
"""

import hashlib
import importlib.util
import os
import shutil
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHIVE = "packed.tar.xz"
PYTHON_FILE = "python-version"
UNPACKED = HERE / "unpacked"
UNPACKED_OF = "unpacked-of"
"""The file in there that says of which archive it is."""
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
    # Whatever lies in the current folder, a clone of another commit say, is not what is measured.
    ours = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    os.execve(sys.executable, words, {**os.environ, **ours})
    return FAILED


def unpack() -> None:
    """Everything, into a folder that is there only when it is whole, and of this archive."""
    archive_path = HERE / ARCHIVE
    digest = hashlib.sha256(archive_path.read_bytes()).hexdigest()
    mark = UNPACKED / UNPACKED_OF
    if mark.is_file() and mark.read_text(encoding="ascii") == digest:
        return
    shutil.rmtree(UNPACKED, ignore_errors=True)
    unfinished = UNPACKED.with_name("unpacked.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    with tarfile.open(archive_path) as archive:
        archive.extractall(unfinished, filter="data")
    (unfinished / UNPACKED_OF).write_text(digest, encoding="ascii")
    unfinished.rename(UNPACKED)


if __name__ == "__main__":
    sys.exit(main())
