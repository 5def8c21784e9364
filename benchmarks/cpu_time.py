"""CPU time of processes, to the nanosecond."""

import time

_CPUCLOCK_SCHED = 2


def process_cpu_s(pid: int) -> float:
    """User and system seconds of all threads of a process; raises OSError when it is gone.

    The clock's number is what ``clock_getcpuclockid`` makes of a pid on Linux.
    """
    return time.clock_gettime(((~pid) << 3) | _CPUCLOCK_SCHED)
