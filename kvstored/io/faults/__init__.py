"""Devices that go wrong on purpose, for tests of what must survive it. They stack.

What lies below a wrapper stays as it should be: a wrapper that damages what is on media
keeps the damage in an overlay of its own. So a test can always ask what is damaged.

In reading order: the base of all wrappers (``passing``) and the overlay of damage (``overlay``);
calls that fail (``calls``), writes that leave something else (``writes``), reads that bring
something else (``reads``), and a write cache that loses what was not flushed (``cache``).
"""
