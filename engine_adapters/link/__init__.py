"""Prompts that are put together from entries whose states were computed on their own (EPIC).

It knows the client, but no model and no engine.

In reading order: what can go wrong (``errors``); documents become entries (``split``), which a
namespace has by their ids (``entries``); what a prompt is made of (``parts``), which tokens a
method computes again (``method``), where everything goes (``plan``), and what is computed in
which order, in place of what was lost as well (``rows``). All but the entries are pure.
"""
