"""What an engine tells the store of its waiting requests.

In reading order: which change of the queue comes next (``queue_changes``), and the thread that
tells it (``queue_teller``).
"""
