"""A store of ten million chunks: how long it takes to open, to ask, and to rebuild.

Everything is measured at a real daemon and a real client. The index is made directly by
kvstored's own ``Index``, because ten million puts would take hours; extents are sparse,
so that neither opening nor matching reads a payload. The full run needs 8 GB of scratch.
"""

from benchmarks.index_scale.run import BENCHMARK

__all__ = ["BENCHMARK"]
