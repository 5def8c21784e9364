"""Reads: from a plan to bytes in the client's arena, verified.

In reading order: where slices lie in an extent or a frame (``chunk_source``), where they go in the
arena (``placement``, copied by ``fragments``), and which bytes are read in which order (``plan``).
A read is a ``read_task``; while it runs it is a ``read_stream`` of three parts: what to issue next
(``run_queues``, within a ``window``), whether it is whole (``landings``), and what its client sees
(``read_progress``). ``lane`` shares a device among streams; ``reader`` executes them all.
"""
