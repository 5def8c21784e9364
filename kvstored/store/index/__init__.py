"""The index: which chunks, sequences and layouts are stored, in LMDB.

In reading order: keys and values of its tables (``entry``) and what it knows of itself (``meta``).
A change is a value (``change``) that one transaction carries out (``transaction``), if there is
room for it (``room``, by what there is, ``usage``). ``index`` looks up and applies changes,
``walks`` goes over whole tables (in parts, ``batches``); both share the opened ``tables``, and how
their entries are decoded.

Opening it: the ``environment`` of LMDB in its ``directory``, as a ``service`` with its clean mark,
its ``snapshot`` and its lock (``index_lock``). How it fails: ``failure``, ``health``, the mark of
damage that outlives the process (``damage_mark``), and where an unsound one goes (``aside``).
Looking through it: a ``probe`` in a process of its own that verifies every record (``scan``) and
every page (``page_walk``, over ``page_format``); ``pages`` bounds the memory that its map counts
for.
"""
