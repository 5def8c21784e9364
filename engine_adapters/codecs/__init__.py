"""Codecs: the states of one slice as bytes, and back. Pure, and agnostic to the store."""
