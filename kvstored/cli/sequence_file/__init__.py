"""Sequences as files that can be checked, for ``export`` and ``import``.

In reading order: one frame of a file and its checksum (``frames``, pure), what the frames say
(``contents``, pure), a file as it is written and read (``file``), the way from and to the store
(``transfer``), and the verbs
(``export_command``, ``import_command``).
"""
