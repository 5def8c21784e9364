"""Which files are documents, and what reads them."""

import gzip
from pathlib import Path

import pytest

from benchmarks.training.markup import (
    markdown_paragraphs,
    plain_paragraphs,
    pod_paragraphs,
    roff_paragraphs,
)
from benchmarks.training.sources import Reader, library_files, read_text, reader_of


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("/usr/share/man/man1/ls.1.gz", roff_paragraphs),
        ("/usr/share/man/de/man1/ls.1.gz", None),
        ("/usr/share/info/grep.info.gz", plain_paragraphs),
        ("/usr/share/common-licenses/GPL-3", plain_paragraphs),
        ("/usr/share/perl/5.36.0/Carp.pm", pod_paragraphs),
        ("/usr/share/perl/5.36.0/perl5db.pl", None),
        ("/usr/share/doc/git/howto.txt", plain_paragraphs),
        ("/usr/share/doc/apt/README.md", markdown_paragraphs),
        ("/usr/share/doc/fio/HOWTO.rst.gz", markdown_paragraphs),
        ("/usr/share/doc/fio/changelog.gz", None),
        ("/usr/share/doc/x/README", plain_paragraphs),
        ("/usr/bin/README", None),
    ],
)
def test_a_document_is_known_by_its_path(name: str, reader: Reader | None) -> None:
    assert reader_of(name) is reader


def test_packed_documents_are_unpacked(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
    plain.write_bytes(b"na\xefve")
    packed.write_bytes(gzip.compress(b"words"))
    assert read_text(plain) == "na\ufffdve"
    assert read_text(packed) == "words"


def test_modules_come_in_order_and_without_tests() -> None:
    paths = [path for path, _ in library_files()]
    assert paths == sorted(paths)
    assert not any("test" in path.parts for path in paths)
