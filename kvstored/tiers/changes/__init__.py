"""Which chunks came and went, for those who follow.

In reading order: the bounded list of one namespace (``change_log``), and who is told what
(``change_feed``).
"""
