"""What a session holds until its end: memory, a bell, layouts and leases.

In reading order: how many sessions may be there (``places``), the shared memory of one (``arena``)
and what uses it (``arena_use``), how the daemon wakes the client (``bell``), the layouts that it
registered (``layout_table``) and what it pins (``leases``).
"""
