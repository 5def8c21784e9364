"""Cake's evaluation with the runner and a daemon on this machine."""
