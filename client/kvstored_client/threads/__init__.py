"""The client for threads.

In reading order: its ``transport``, its ``client``, a ``read`` in flight, ``sequences``, and
questions to the daemon about itself (``admin``).
"""
