"""What a session holds until its end: memory, a bell, layouts and leases.

In reading order: the shared memory (``arena``) and what uses it (``arena_use``), how the daemon
wakes the client (``bell``), the layouts that it registered (``layout_table``) and what it pins
(``leases``).
"""
