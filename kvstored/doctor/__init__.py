"""What about a machine would keep a daemon from serving, or from serving fast.

In reading order: what is known of a machine, its devices and folders (``facts``, pure), who looks
it up (``machine``, ``places``), what the configuration needs (``needs``), and what is right, slow
or wrong about it, each with its remedy (``finding``; ``judge``, pure). A configuration that
fits is made in ``proposal`` (pure).
"""
