"""What a client and the daemon must agree on beyond the protobuf messages.

Byte layouts and derivations, without I/O but for the framing of the session socket.

What is cached: how a model's states are cut into chunks and slices (``layout``), which dtypes
they may have (``dtypes``), the states of one engine step (``snapshot``), and the names of chunks
(``keys``). How both sides talk: the first messages of a session (``handshake``) and how a client
gets them through (``session_socket``), the progress of a read in shared memory (``board``), why a
call was not served (``reasons``), and every limit that both know (``limits``).
"""
