"""For tests: a CPU that copies as late as a GPU does.

In reading order: the bytes of memory that is used too early (``poison``), and the copies
(``delayed_copies``).
"""
