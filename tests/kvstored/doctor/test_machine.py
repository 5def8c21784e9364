import os
import platform
from pathlib import Path

import pytest

from kvstored.doctor import machine
from kvstored.doctor.machine import look_at_machine

MIB = 1024 * 1024


def test_this_machine() -> None:
    facts = look_at_machine()
    assert facts.kernel_release == platform.release()
    assert 0 < facts.available_bytes <= facts.physical_bytes
    assert facts.physical_bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + MIB
    assert facts.open_files_max > 0


def test_memory_and_the_pool_of_huge_pages(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(
        "MemTotal:  2048 kB\nMemAvailable: 1024 kB\nHugePages_Total: 3\nstrange\n"
    )
    (tmp_path / "sys" / "vm").mkdir(parents=True)
    (tmp_path / "sys" / "vm" / "nr_hugepages").write_text("3\n")
    (tmp_path / "sys" / "vm" / "nr_overcommit_hugepages").write_text("4\n")
    facts = look_at_machine(tmp_path)
    assert (facts.physical_bytes, facts.available_bytes) == (2 * MIB, MIB)
    assert facts.huge_page_pool_bytes == 7 * 2 * MIB


def test_what_the_kernel_does_not_show_counts_as_nothing(tmp_path: Path) -> None:
    facts = look_at_machine(tmp_path)
    assert (facts.physical_bytes, facts.huge_page_pool_bytes) == (0, 0)


def test_why_io_uring_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise PermissionError(1, "whatever")

    monkeypatch.setattr(machine, "probe", refuse)
    assert look_at_machine().io_uring_error == "Operation not permitted"
