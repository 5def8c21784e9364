from pathlib import Path

from benchmarks.vllm.native import FIGURES, drop_cached, series


def test_figure_is_the_ratio_of_each_round() -> None:
    figure, *samples = series(
        {"native_prefix": (1.0, 2.0, 3.0), "native_native_fs": (2.0, 2.0, 2.0)}
    )
    assert (figure.key,) == FIGURES
    assert figure.samples == (0.5, 1.0, 1.5)
    assert [one.key for one in samples] == ["native_prefix_s", "native_native_fs_s"]


def test_files_stay_when_their_cache_is_given_up(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "chunk.bin"
    file.parent.mkdir()
    file.write_bytes(b"bytes")
    drop_cached(tmp_path)
    assert file.read_bytes() == b"bytes"
