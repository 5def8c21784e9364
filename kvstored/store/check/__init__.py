"""The offline check: everything on media against everything that vouches for it.

In reading order: what it found (``check_report``), how one chunk is verified (``chunk_check``),
and the whole (``offline_check``).
"""
