"""The chunk store on devices: where chunks lie, what vouches for them, how they come and go.

In reading order: which space there is (``space``), what is stored where (``index``), how chunks
are read (``read``) and written (``write``), what sequences are and how they are kept
(``sequences``), how a start finds everything again (``start``), and the offline check (``check``).
Each package imports only packages named before it.
"""
