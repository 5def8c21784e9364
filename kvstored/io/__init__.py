"""Devices and I/O engines: two small protocols and what implements or wraps them."""
