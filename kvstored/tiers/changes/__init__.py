"""Which chunks came and went, for those who follow.

In reading order: the bounded list of one namespace (``change_log``), and who hears of what
(``change_feed``).
"""
