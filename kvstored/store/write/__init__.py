"""Writes: chunks on their way to the devices, durable in the order that the index promises.

In reading order: where the rows of a step go in open chunks (``append_rows``), and the copies that
bring them there (``row_copies``). Extents are taken and given back by ``extents``, once the header
of their slab is on media; ``writer`` brings a sealed chunk there, and ``committer`` makes groups of
changes durable. One write for a key at a time: ``chunk_writes``; who has a chunk in use:
``chunk_pins``; which devices have failed stop: ``device_failures``. ``chunk_store`` puts these
parts together (``chunk_store_parts``): chunks are found, deleted, quarantined.
"""
