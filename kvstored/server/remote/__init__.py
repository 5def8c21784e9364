"""Callers on other machines: control verbs over TCP with mutual TLS.

Certificates and when they are read again (``certificates``), which verbs are served (``verbs``),
whose session a call has (``remote_sessions``), and the server itself (``remote_server``).
"""
