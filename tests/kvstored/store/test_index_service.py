import random
import subprocess
import sys
from pathlib import Path

import pytest

from kvstored.store import index_probe
from kvstored.store.index import DATA_FILE, Index, IndexChange, IndexDamagedError, IndexFailure
from kvstored.store.index_entry import Table
from kvstored.store.index_probe import EXIT_DAMAGED, main, probe, probe_in_child
from kvstored.store.index_service import CLEAN_FILE, close_cleanly, open_for_service, set_aside
from tests.kvstored.store.index_stores import MAP_BYTES, chunk_id, extent_at, meta, record_at


def fill(index: Index, count: int = 300) -> None:
    index.apply(
        IndexChange(
            puts=tuple((chunk_id(n), record_at(extent_at(n), stamp=n)) for n in range(count)),
            meta=meta(),
        )
    )


@pytest.fixture
def unclean(tmp_path: Path) -> Path:
    """An index that was never closed for the marker."""
    path = tmp_path / "index"
    index, _ = open_for_service(path, MAP_BYTES)
    fill(index)
    index.close()
    return path


def damage_pages(path: Path, first_page: int) -> None:
    """Overwrites everything from a page on, as far as the file goes."""
    data = path / DATA_FILE
    content = bytearray(data.read_bytes())
    start = first_page * 4096
    content[start:] = b"\xa5" * (len(content) - start)
    data.write_bytes(content)


def test_new_index_counts_as_clean(tmp_path: Path) -> None:
    index, was_clean = open_for_service(tmp_path / "index", MAP_BYTES)
    assert was_clean
    assert index.meta() is None
    close_cleanly(index)
    assert (tmp_path / "index" / CLEAN_FILE).exists()


def test_index_closed_in_order_is_clean_and_not_probed(unclean: Path, monkeypatch) -> None:
    index, _ = open_for_service(unclean, MAP_BYTES)
    close_cleanly(index)
    closed = Index.open(unclean, map_bytes=MAP_BYTES, readonly=True)
    assert closed.meta() == meta(clean=True)
    closed.close()

    def refuse(path: Path) -> None:
        raise AssertionError(f"{path} was probed")

    monkeypatch.setattr("kvstored.store.index_service.probe_in_child", refuse)
    index, was_clean = open_for_service(unclean, MAP_BYTES)
    assert was_clean
    assert index.meta() == meta(clean=False)
    assert not (unclean / CLEAN_FILE).exists()
    index.close()


def test_unclean_index_is_probed_and_opened(unclean: Path) -> None:
    index, was_clean = open_for_service(unclean, MAP_BYTES)
    assert not was_clean
    assert index.chunk_count == 300
    index.close()


def test_damaged_tree_is_refused_and_can_be_set_aside(unclean: Path) -> None:
    damage_pages(unclean, 2)
    with pytest.raises(IndexDamagedError, match="index"):
        open_for_service(unclean, MAP_BYTES)
    assert set_aside(unclean).name == "index.damaged-1"
    index, was_clean = open_for_service(unclean, MAP_BYTES)
    assert was_clean
    assert index.chunk_count == 0
    index.close()
    assert set_aside(unclean).name == "index.damaged-2"


def test_truncated_map_kills_only_the_child(unclean: Path) -> None:
    data = unclean / DATA_FILE
    with data.open("r+b") as file:
        file.truncate(3 * 4096)
    with pytest.raises(IndexDamagedError, match=r"damaged .*signal 7"):
        probe_in_child(unclean)


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_anywhere_in_the_file_never_makes_a_wrong_record(
    unclean: Path, seed: int
) -> None:
    data = unclean / DATA_FILE
    content = bytearray(data.read_bytes())
    bit = random.Random(seed).randrange(len(content) * 8)
    content[bit // 8] ^= 1 << bit % 8
    data.write_bytes(content)
    try:
        index, _ = open_for_service(unclean, MAP_BYTES)
    except IndexFailure:
        return
    chunks = [chunk_id(n) for n in range(300)]
    expected = [record_at(extent_at(n), stamp=n) for n in range(300)]
    found = index.get_many(chunks)
    index.close()
    assert all(record in {None, wanted} for record, wanted in zip(found, expected, strict=True))


def test_a_failed_index_leaves_no_marker(tmp_path: Path) -> None:
    index, _ = open_for_service(tmp_path / "index", 128 * 1024)
    index._failure = "a write failed"
    close_cleanly(index)
    assert not (tmp_path / "index" / CLEAN_FILE).exists()


def test_probe_counts_single_damaged_values_but_calls_the_index_sound(unclean: Path) -> None:
    assert probe(unclean) == 0
    index = Index.open(unclean, map_bytes=MAP_BYTES)
    with index._environment.begin(index._tables[Table.CHUNKS], write=True) as transaction:
        transaction.put(chunk_id(5).encode(), b"garbage")
    index.close()
    assert probe(unclean) == 1
    probe_in_child(unclean)


def test_probe_that_takes_too_long_is_a_failure(unclean: Path, monkeypatch) -> None:
    def never_ends(*arguments: object, **options: object) -> None:
        raise subprocess.TimeoutExpired("probe", 1.0)

    monkeypatch.setattr(index_probe.subprocess, "run", never_ends)
    with pytest.raises(IndexFailure, match="took longer than 900 s"):
        probe_in_child(unclean)


def test_command_line_of_the_probe(
    unclean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    main([str(unclean)])
    with pytest.raises(SystemExit, match=str(EXIT_DAMAGED)):
        main([str(tmp_path / "nowhere")])
    assert "cannot open the index" in capsys.readouterr().err

    def refuse(*_: object, **__: object) -> Index:
        raise IndexFailure("no memory")

    monkeypatch.setattr(Index, "open", refuse)
    with pytest.raises(SystemExit, match="no memory"):
        main([str(unclean)])
    with pytest.raises(SystemExit, match="exactly one"):
        main([])


def test_probe_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kvstored.store.index_probe", str(tmp_path / "nowhere")]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == EXIT_DAMAGED
    assert "cannot open the index" in child.stderr


def test_what_is_not_damage_does_not_ask_for_a_rebuild(
    unclean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that merely cannot be opened must not be set aside."""
    child = subprocess.CompletedProcess([], 1, stdout="", stderr="no memory")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: child)
    with pytest.raises(IndexFailure, match="no memory") as caught:
        probe_in_child(unclean)
    assert not isinstance(caught.value, IndexDamagedError)
