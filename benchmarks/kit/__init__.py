"""What several benchmarks stand on: processes, a slowed machine, and what is saved on it.

In the order in which it is best read: a child that answers in lines (``line_process``), a daemon
and a client of it (``daemon_process``), the daemon of one device that is filled at full speed and
then read at a rate (``slow_machine``), random models (``scratch_model``), and the states of one
history, saved once for each use (``saved_history``) and restored (``restored_history``).
"""
