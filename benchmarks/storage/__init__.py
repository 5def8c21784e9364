"""The store beside its ceilings: fio with O_DIRECT on the same file system, and memcpy.

Everything is measured at the client process. A read counts only when the daemon's own
account of where the bytes came from is the tier that the figure is about.
"""

from benchmarks.storage.run import BENCHMARK

__all__ = ["BENCHMARK"]
