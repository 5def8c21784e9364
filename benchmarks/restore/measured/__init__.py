"""Restoring a history in all modes, measured with the runner and a daemon on this machine."""
