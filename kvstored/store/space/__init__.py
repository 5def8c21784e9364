"""Space on the devices: slabs, extents, and the table of the chunks that lie in them.

In reading order: slabs and extents as numbers (``slab_geometry``) and which of them are free on
which device (``allocator``). Many chunks as claims: in arrays (``claim_block``) and as a stream of
bytes (``claim_stream``). The chunks in service, compactly: ``chunk_table``, which finds rows of
``chunk_columns`` by ``key_map``, knows by ``slab_census`` what each slab holds, and by
``use_times`` when chunks were used, and which together. On media: the devices of one store
(``device_set``), their superblocks (``superblock_copies``), and the extents of a slab without the
index (``slab_scan`` into a ``scanned_slab``, which reads in doubt as often as ``second_looks``
allow, over threads with ``bounded_map``).
"""
