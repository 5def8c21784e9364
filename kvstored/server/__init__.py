"""Sessions and the gRPC services: who may talk to the store, and how.

In reading order: the life of the server (``server``), its sockets (``listen``), how many
connections they take (``connections``, pure; ``fair_connections``) and what systemd hears
(``notify``). A client comes through the handshake (``session_socket``), which asks who it is
(``peer``) and whether it may (``access``); its session (``session``) is one of those in
``session_table`` and has what the client holds (``held``).

Calls come over gRPC (``grpc_server``): how one is let in (``admission``), its message in parts
(``message_parts``), what all services share (``calls``), what fields may say (``fields``), and how
a refusal travels (``errors``). The services: sessions and layouts (``session_servicer``), chunks
(``store_servicer``, whose messages ``store_requests`` turns into what the tiers are asked),
sequences (``sequence_servicer``) and queues of engines (``hint_request``), the daemon itself
(``admin_servicer``), and what operators do to it (``operators``). Callers on other machines have a
gRPC server of their own (``remote``). So that no call holds up others:
threads that a session may take (``thread_share``), waits with a deadline, and slices of long work
(``waits``), and pins for the time of a call (``pinned``).
"""
