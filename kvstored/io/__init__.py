"""Devices and I/O engines: two small protocols and what implements or wraps them.

In reading order: a device (``device``), which transfers it accepts, in how many requests and calls
(``transfer``), one that is a file or a block device (``file_device``, with ``direct_io`` for what
the kernel asks of it) and one in memory (``memory_device``). Around a device, all derived from
``passing``: counts (``monitored``), a bounded rate (``throttled``), and failures on purpose
(``faulty``, ``faults``).

An engine runs transfers (``engine``): with threads (``thread_engine``) or io_uring (``ring_engine``
on ``ring``); ``open_engine`` chooses. Which transfer may start is decided by ``schedule``, which
``scheduled_engine`` obeys. Memory for transfers is taken page-aligned (``memory``), made resident
first (``resident``), within what the control group grants (``memory_group``).
"""
