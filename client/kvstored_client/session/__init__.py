"""One session with the daemon, and the memory that it shares.

In reading order: how a client is set up (``options``, ``limits``) and what it counts
(``counters``). The arena: ``free_space``, ``region``, ``arena``. The daemon: a ``channel`` to it,
whether it is there (``presence``), the ``session``, and when to connect (``connection``).
"""
