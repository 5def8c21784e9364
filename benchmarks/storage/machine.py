"""What of the machine decides over the figures and is not seen in them. Pure."""

import re


def huge_pages(meminfo: str) -> str:
    """The pool of huge pages, from which arenas are taken, as ``/proc/meminfo`` shows it."""
    found = dict(re.findall(r"^(\w+):\s+(\d+)", meminfo, re.MULTILINE))
    free, size_kib = int(found.get("HugePages_Free", 0)), int(found.get("Hugepagesize", 0))
    return f"huge pages: {free} of {size_kib} KiB free for arenas"
