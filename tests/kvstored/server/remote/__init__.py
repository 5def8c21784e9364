"""Callers on other machines."""
