"""Training small Llamas that benchmarks judge by: what such trainings have in common.

In reading order. The text: documents in their markups (``markup``), which of them is prose
(``prose``), where they lie (``sources``), all of them (``corpus``), as tokens (``prepared``). The
training: its numbers (``plan``), what a step looks at (``batch``), the ``network``, what heads in
its first weights are made of (``heads``), the steps (``trainer``), what comes out
(``checkpoint``), and the ``command``. docs/development.md says how to train, and why so.
"""
