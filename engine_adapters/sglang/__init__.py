"""A storage backend by which SGLang's HiCache keeps its pages in kvstored (``dynamic``).

In reading order: how a page of the host pool becomes a chunk (``page_format``), what is asked of
the store (``page_store``), and the class that SGLang loads (``backend``), which alone imports it.
"""
