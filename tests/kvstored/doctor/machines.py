"""A machine on which everything is right, to be made worse."""

from pathlib import Path

from kvstored.doctor.facts import DevicePlace, Facts, FolderPlace, MachineFacts, PlaceKind
from kvstored.doctor.needs import IoUringNeed, Needs

GIB = 1024**3
NEEDS = Needs(
    io_uring=IoUringNeed.WELCOME,
    dram_bytes=8 * GIB,
    arenas_bytes=16 * GIB,
    device_bytes=100 * GIB,
    index_bytes=16 * GIB,
    sessions=64,
)
MACHINE = MachineFacts(
    kernel_release="6.1.0-amd64",
    io_uring_error=None,
    physical_bytes=64 * GIB,
    available_bytes=32 * GIB,
    group_room_bytes=None,
    huge_page_pool_bytes=16 * GIB,
    open_files_max=65536,
    is_clock_set=True,
)
DEVICE = DevicePlace(
    path=Path("/nvme0/kvstored"),
    kind=PlaceKind.FILE,
    size_bytes=100 * GIB,
    alignment_bytes=512,
    drive="nvme0n1",
    write_cache="write back",
)
INDEX = FolderPlace(path=Path("/index"), is_writable=True, free_bytes=20 * GIB)
SOCKETS = FolderPlace(path=Path("/run/kvstored"), is_writable=True)
FACTS = Facts(machine=MACHINE, devices=(DEVICE,), index=INDEX, sockets=(SOCKETS,))
