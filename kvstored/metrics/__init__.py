"""What monitoring asks: numbers for Prometheus, and whether the daemon lives and is ready.

In reading order: what is known of the daemon at one moment (``snapshot``, pure), in which phase of
its life it is (``view``), who looks (``looks``), whether that is ready (``readiness``, pure), the
numbers (``families``, pure), what it did in the last minutes (``history``, pure), what its page
shows (``page_data``, pure; ``page``), where is listened (``listener``), how many connections there
are at once (``connections``), and the thread that answers (``endpoint``).
"""
