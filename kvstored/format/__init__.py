"""Pure translation between the values of the store and their bytes on media.

docs/design.md, "Bytes on media", gives every field. In reading order: the checksum of all of them
(``checksum``) and the error of bytes that are none of ours (``errors``). On a device: what makes it
one of a set (``superblock``), the header of a slab (``slab_header``), where a chunk lies, and its
slices in there (``geometry``), and its header (``extent_header``). In the index: names of chunks
(``identity``), where each one lies (``chunk_record``, many at once in ``chunk_records``), how long
its slices are (``slice_lengths``, many at once in ``slice_lengths_parts``), layouts
(``layout_record``), and sequences (``sequence_record``).
"""
