"""What operators do to the daemon while it serves.

In reading order: whether it takes new work (``intake``), pins that outlive a session
(``kept_pins``), and the service (``operator_servicer``).
"""
