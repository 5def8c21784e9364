"""Pure eviction policies: which chunk goes first when a tier is full.

In reading order: the protocol (``protocol``); least recently used for frames (``lru``) and for the
rows of the table of chunks (``table_lru`` on ``use_order``); how often chunks were used lately
(``use_counts``); and which slab of frames another size class gets (``slab_uses``).
"""
