"""kvstored: a node-local daemon that stores the attention state of language models.

From below: bytes on media (``format``), transfers to devices (``io``), chunks and sequences on
devices (``store``), DRAM above them (``tiers``), sessions and calls (``server``), what monitoring
asks (``metrics``). The daemon is put together in ``daemon``, as ``config`` says (with
``config_tenants`` and ``config_remote``, made of ``config_values``; ``config_mistakes`` says what
is wrong, ``accounts`` looks up whom it names), and is operated by the command (``cli``, also
started as a module), which also looks at the machine (``doctor``). Beside them: counts of what
happened (``counters``) and how long calls took (``call_times``), moments until which is waited
(``deadlines``), how threads let the event loop pass (``turnstile``), the C library's settings
(``c_library``), the interpreter's ``full_collections``, and where a measurement comes from
(``evidence``). What changes while the daemon runs: ``reload``. What is logged goes to systemd's
journal with fields (``journal_log``), or to stderr in lines (``stream_log``).
"""


def package_version() -> str:
    """The version that is installed; looked up on each call, which takes milliseconds."""
    from importlib.metadata import version

    return version("kvstored")
