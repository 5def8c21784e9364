"""What a client and the daemon must agree on beyond the protobuf messages.

Pure: byte layouts and derivations, no I/O but the framing of the session socket.
"""
