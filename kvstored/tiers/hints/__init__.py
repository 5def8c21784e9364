"""What engines say about the requests that wait, and what comes of it.

In reading order: a change of a queue and its answer (``queue_change``), what a session may have
waiting (``session_queue``), the queues of all as one (``waiting_queue``), the verb (``hints``), and
what is fetched ahead (``prefetcher``).
"""
