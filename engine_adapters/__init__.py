"""Adapters that connect inference engines to kvstored through its client."""
