from benchmarks.storage.machine import huge_pages


def test_the_pool_of_huge_pages() -> None:
    meminfo = "MemFree:  10 kB\nHugePages_Total: 7\nHugePages_Free:  5\nHugepagesize:  2048 kB\n"
    assert huge_pages(meminfo) == "huge pages: 5 of 2048 KiB free for arenas"
    assert huge_pages("MemFree: 10 kB\n") == "huge pages: 0 of 0 KiB free for arenas"
