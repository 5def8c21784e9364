"""Copies between host memory and the device that computes, which nobody waits for in vain.

In reading order: when a copy is over (``landing``), what an engine asks for (``copies``), where a
device's memory is the host's (``host_copies``), on CUDA (``cuda_copies``, with ``pinned_memory``
and ``staging_ring``), and which of them a device gets (``open_copies``). What tests use
instead: ``testing``.
"""
