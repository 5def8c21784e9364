"""The client for tasks of an event loop.

In reading order: its ``transport``, its ``client``, a ``read`` in flight, ``sequences``, and
questions to the daemon about itself (``admin``).
"""
