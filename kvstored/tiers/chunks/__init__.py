"""Chunks in DRAM, and their way to the devices and back.

In reading order: what the server asks and is answered (``requests``). Frames (``frame``) lie in the
DRAM tier (``dram``), whose memory is ``frame_space``, whose waiting requests are ``frame_hints``
and whose last uses are ``frame_ages``, those of chunks without a key in ``open_frames``;
``frame_victims`` says which go. From a filled frame to a durable chunk leads ``stager``, with room
on the devices from ``nvme_room``, where ``nvme_victims`` says what goes, and ``device_ages`` what
was not used for too long. Both tiers are shared by ``accounts``, whose rows of the table are
``account_rows``; ``expirer`` frees what has expired. Complete chunks come by ``put_path`` and go by
``read_path``; what is read again and again is brought into DRAM by ``promoter``. Damage that a read
met is confirmed first (``damage``), on bytes that no client can write (``extent_load``, into
frames, too, as a group by ``chunk_fetcher``); each of the two has a ``chunk_thread``. What
operators see: ``status``, ``inspection`` and, of namespaces, ``namespace_fill``.
"""
