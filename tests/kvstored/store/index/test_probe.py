import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest

from kvstored.format.chunk_record import RECORD_BYTES
from kvstored.store.index import probe as index_probe
from kvstored.store.index.entry import Table
from kvstored.store.index.index import DATA_FILE, Index, IndexDamagedError, IndexFailure
from kvstored.store.index.probe import EXIT_DAMAGED, main, probe, probe_in_child
from kvstored.store.index.scan import Scanned
from kvstored.store.space.claim_block import ClaimBlock
from kvstored.store.space.claim_stream import PartKind, read_parts
from tests.kvstored.store.index_stores import (
    MAP_BYTES,
    chunk_id,
)
from tests.kvstored.store.served_index import COUNT, ignore
from tests.support.raw_index import raw_write


def test_probe_counts_single_damaged_values_but_calls_the_index_sound(unclean: Path) -> None:
    assert probe(unclean) == 0
    index = Index.open(unclean, map_bytes=MAP_BYTES)
    with raw_write(index, Table.CHUNKS) as transaction:
        transaction.put(chunk_id(5).encode(), bytes(RECORD_BYTES))
    index.close()
    assert probe(unclean) == 1
    probe_in_child(unclean)


def test_pages_of_another_lmdb_are_not_judged(
    unclean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start after an update of LMDB took its pages for damage and rebuilt the index."""

    def judge(_: Path) -> None:
        raise IndexDamagedError("pages that are laid out in another way")

    monkeypatch.setattr(index_probe, "check_pages", judge)
    with pytest.raises(IndexDamagedError, match="another way"):
        probe(unclean)
    monkeypatch.setattr(lmdb, "version", lambda: (1, 0, 0))
    assert probe(unclean) == 0


def test_the_child_hands_over_what_it_found(unclean: Path) -> None:
    index = Index.open(unclean, map_bytes=MAP_BYTES)
    with raw_write(index, Table.CHUNKS) as transaction:
        transaction.put(chunk_id(5).encode(), bytes(RECORD_BYTES))
        transaction.put(chunk_id(COUNT).encode(), bytes(RECORD_BYTES))
    index.close()
    scanned: list[Scanned] = []
    probe_in_child(unclean, scanned.append)
    (claims,) = [part.claims for part in scanned if len(part.claims)]
    assert sorted(claims.stamps.tolist()) == [n for n in range(COUNT) if n != 5]
    keys = [key for part in scanned for key in part.damaged_keys]
    assert sorted(keys) == [chunk_id(5).encode(), chunk_id(COUNT).encode()]


CHILDREN = {
    "late": ("import time; time.sleep(600)", IndexFailure, "took longer than 0.2 s"),
    "cut": ("import sys; sys.stdout.write('CLM')", IndexFailure, "did not arrive whole"),
    "garbage": ("print('no stream at all ' * 9)", IndexFailure, "did not arrive whole"),
    "dead": ("import os; os.kill(os.getpid(), 7)", IndexDamagedError, "signal 7"),
    "damaged": ("import sys; sys.stderr.write('x y\\n'); sys.exit(3)", IndexDamagedError, "x y"),
    "other": ("import sys; sys.exit('no memory')", IndexFailure, "^no memory$"),
}


@pytest.mark.parametrize("name", CHILDREN)
def test_what_a_child_can_do_wrong(name: str, tmp_path: Path, monkeypatch) -> None:
    program, kind, message = CHILDREN[name]
    if name == "late":
        monkeypatch.setattr(index_probe, "PROBE_TIMEOUT_S", 0.2)
    real = subprocess.Popen

    def spawn(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return real([sys.executable, "-c", program], **options)

    monkeypatch.setattr(subprocess, "Popen", spawn)
    with pytest.raises(IndexFailure, match=message) as caught:
        probe_in_child(tmp_path, ignore)
    # What is not damage must not ask for a rebuild.
    assert type(caught.value) is kind


def test_a_receiver_that_fails_ends_the_child(unclean: Path, monkeypatch) -> None:
    children: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def spawn(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        children.append(real(*arguments, **options))
        return children[-1]

    monkeypatch.setattr(subprocess, "Popen", spawn)

    def refuse(_: Scanned) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        probe_in_child(unclean, refuse)
    assert children[0].returncode is not None


def cut_index(folder: Path) -> Path:
    """An index of which nearly nothing is left."""
    path = folder / "cut"
    path.mkdir()
    (path / DATA_FILE).write_bytes(b"cut")
    return path


def test_command_line_of_the_probe(
    unclean: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    main([str(unclean)])
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output))
    main([str(unclean), "--claims"])
    parts = list(read_parts(io.BytesIO(output.getvalue())))
    assert [kind for kind, _ in parts] == [PartKind.CLAIMS]
    assert len(ClaimBlock.decode(parts[0][1])) == COUNT
    with pytest.raises(SystemExit, match=str(EXIT_DAMAGED)):
        main([str(cut_index(tmp_path))])
    assert "are damaged" in capsys.readouterr().err

    def refuse(*_: object, **__: object) -> Index:
        raise IndexFailure("no memory")

    monkeypatch.setattr(Index, "open", refuse)
    with pytest.raises(SystemExit, match="no memory"):
        main([str(unclean)])
    with pytest.raises(SystemExit, match="exactly one"):
        main([])


def test_probe_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kvstored.store.index.probe", str(cut_index(tmp_path))]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == EXIT_DAMAGED
    assert "are damaged" in child.stderr


def test_an_index_that_is_not_there_was_called_damaged(tmp_path: Path) -> None:
    """Bug: what LMDB does not know by name was damage, an absent file included."""
    with pytest.raises(IndexFailure, match=r"cannot open the index in .*nowhere") as caught:
        probe(tmp_path / "nowhere")
    assert type(caught.value) is IndexFailure
    with pytest.raises(SystemExit, match="cannot open the index in"):
        main([str(tmp_path / "nowhere")])
