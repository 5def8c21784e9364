"""Codecs: the states of one slice as bytes, and back. Pure, and agnostic to the store.

In reading order: what every codec offers (``codec``) and is given (``slice_shape``), what can go
wrong (``errors``), and all codecs by name (``registry``). The codecs: the bytes themselves
(``raw``), byte planes that are compressed (``zstd``), 8 bits a value (``int8``), 3 bits a value
(``int3``), and differences to anchors (``cachegen``).

Their parts: tensors as bytes (``byte_view``) and as planes of bytes (``byte_planes``), the first
bytes of a payload (``header``), parts that are entropy coded (``segment``), packed codes
(``bit_packing``), and, for codecs that lose something, the values (``values``), groups that share
a scale (``grouping``), scales (``symmetric``, rounded by ``bfloat16``), and anchors (``anchors``).
"""
