"""What stored bytes depend on: anything else must be a miss.

In reading order: an engine (``identity``), a request (``request_identity``), the keys of its chunks
(``chunk_keys``), and chunks of vLLM's host tier (``tier_identity``).
"""
