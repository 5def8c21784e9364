"""From what lies on media to a store that can serve.

In reading order: the index is opened, whatever way the last stop went (``index_open``); from it
the free space and the table of chunks are recovered (``recover``); where it is lost, it is rebuilt
from the headers on the devices (``rebuild``, in batches: ``rebuild_batch``).
"""
