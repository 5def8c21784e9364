"""The online scrub: everything on the devices is read now and then, at a bounded rate.

In reading order: when it reads and in which order (``scrub_pace``), a device as it sees it
(``scrub_device``), one pass (``scrub_pass``), and the thread (``scrub``).
"""
