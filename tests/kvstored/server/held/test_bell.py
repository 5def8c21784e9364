"""The bell."""

import os
import select
import threading

from kvstored.server.held.bell import Bell
from tests.support.waiting import PATIENCE_S, wait_until


def is_readable(descriptor: int, timeout_s: float = PATIENCE_S) -> bool:
    return bool(select.select([descriptor], [], [], timeout_s)[0])


def bell_with_its_thread() -> tuple[Bell, threading.Thread]:
    before = set(threading.enumerate())
    bell = Bell()
    started = set(threading.enumerate()) - before
    (thread,) = [thread for thread in started if thread.name == "kvstored-bell"]
    return bell, thread


def test_a_ring_wakes_the_client() -> None:
    bell = Bell()
    assert not is_readable(bell.descriptor, 0)
    bell.ring()
    assert is_readable(bell.descriptor)
    assert os.eventfd_read(bell.descriptor) == 1
    bell.close()


def test_a_closed_bell_is_silent_and_its_thread_ends() -> None:
    bell, thread = bell_with_its_thread()
    client = os.dup(bell.descriptor)
    bell.close()
    bell.close()
    bell.ring()
    thread.join()
    assert not is_readable(client, 0)
    os.close(client)


def test_a_full_counter_does_not_block() -> None:
    bell = Bell()
    os.eventfd_write(bell.descriptor, 2**64 - 2)
    bell.ring()
    assert os.eventfd_read(bell.descriptor) >= 2**64 - 2
    bell.close()


def test_a_client_that_holds_the_bell_holds_nobody_else() -> None:
    """The flags are shared: the client makes the eventfd blocking and fills it."""
    bell, thread = bell_with_its_thread()
    client = os.dup(bell.descriptor)
    os.set_blocking(client, True)
    os.eventfd_write(client, 2**64 - 2)
    for _ in range(3):
        bell.ring()
    wait_until(lambda: bell._is_writing)
    bell.ring()
    bell.close()
    thread.join()
    os.close(client)
