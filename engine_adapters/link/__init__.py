"""Prompts that are put together from entries whose states were computed on their own (EPIC).

It knows the client, but no model and no engine.

In reading order: what can go wrong (``errors``); documents become entries (``split``); what an
entry is and how it is written (``entry``), and how many there may be (``quota``); a namespace has
them by their ids (``entries``); what a prompt is made of (``parts``), which tokens a method
computes again (``method``), where everything goes (``plan``), which tokens a query chooses
(``ranking``), what is computed in which order, in place of what was lost as well (``rows``), and
what of it can be while entries come (``open_rows``).
All but the entries of a namespace are pure.
"""
