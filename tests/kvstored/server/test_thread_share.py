"""What one session may occupy of a pool of threads."""

import asyncio
import math
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvstored.server.errors import RefusedError, refuse
from kvstored.server.thread_share import ThreadShare
from kvstored_contract.reasons import Reason
from tests.support.waiting import PATIENCE_S, until

SHARE = 2


class Work:
    """Functions that block until they may end; counts those that have begun."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.begun: list[int] = []

    def do(self, number: int) -> int:
        self.begun.append(number)
        self.may_end.wait(PATIENCE_S)
        return number


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


@pytest.fixture
def work(executor: ThreadPoolExecutor) -> Iterator[Work]:
    work = Work()
    yield work
    work.may_end.set()


async def test_a_session_has_its_share_and_leaves_the_rest_to_others(
    executor: ThreadPoolExecutor, work: Work
) -> None:
    """Fails when the share has one more (seen: a third has begun)."""
    one, other = ThreadShare(SHARE), ThreadShare(SHARE)
    calls = [
        asyncio.create_task(one.run(math.inf, executor, work.do, number)) for number in range(5)
    ]
    await until(lambda: len(work.begun) >= SHARE)
    others = asyncio.create_task(other.run(math.inf, executor, work.do, 9))
    await until(lambda: 9 in work.begun)
    assert sorted(work.begun) == [0, 1, 9]
    work.may_end.set()
    assert await asyncio.gather(*calls, others) == [0, 1, 2, 3, 4, 9]
    await until(lambda: one.is_idle and other.is_idle)


async def test_what_waits_for_a_thread_begins_in_order(
    executor: ThreadPoolExecutor, work: Work
) -> None:
    """With a share of one: threads that are taken at once begin in whatever order they run."""
    share = ThreadShare(1)
    calls = [
        asyncio.create_task(share.run(math.inf, executor, work.do, number)) for number in range(5)
    ]
    await until(lambda: work.begun == [0])
    work.may_end.set()
    assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4]
    assert work.begun == [0, 1, 2, 3, 4]


async def test_a_thread_counts_after_its_call_was_given_up(
    executor: ThreadPoolExecutor, work: Work
) -> None:
    share = ThreadShare(SHARE)
    calls = [
        asyncio.create_task(share.run(math.inf, executor, work.do, number))
        for number in range(SHARE)
    ]
    await until(lambda: len(work.begun) >= SHARE)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    late = asyncio.create_task(share.run(math.inf, executor, work.do, 7))
    await asyncio.sleep(0)
    assert not share.is_idle
    assert 7 not in work.begun
    work.may_end.set()
    assert await late == 7


async def test_nothing_begins_once_it_is_closed(executor: ThreadPoolExecutor, work: Work) -> None:
    share = ThreadShare(1)
    calls = [
        asyncio.create_task(share.run(math.inf, executor, work.do, number)) for number in range(3)
    ]
    await until(lambda: work.begun == [0])
    share.close()
    assert not share.is_idle
    work.may_end.set()
    assert await calls[0] == 0
    for call in calls[1:]:
        with pytest.raises(RefusedError) as info:
            await call
        assert info.value.reason is Reason.TOKEN_UNKNOWN
    assert work.begun == [0]
    assert share.is_idle


async def test_what_a_function_raises_is_raised(executor: ThreadPoolExecutor) -> None:
    share = ThreadShare(1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await share.run(math.inf, executor, divmod, 1, 0)


async def test_what_a_pool_had_no_thread_for_is_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: it was queued all the same, and ran later, when its session had ended."""
    ran: list[int] = []

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with ThreadPoolExecutor(1) as executor:
        share = ThreadShare(1)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await share.run(math.inf, executor, ran.append, 1)
        assert share.is_idle
        await share.run(math.inf, executor, ran.append, 2)
    assert ran == [2]


async def test_a_pool_that_takes_nothing_costs_no_thread_of_the_share(
    executor: ThreadPoolExecutor,
) -> None:
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    share = ThreadShare(1)
    with pytest.raises(RuntimeError):
        await share.run(math.inf, ended, len, "")
    assert await share.run(math.inf, executor, len, "four") == 4


async def test_a_call_that_finds_no_thread_until_its_deadline_is_refused(
    executor: ThreadPoolExecutor, work: Work
) -> None:
    """Bug: it waited for as long as those before it did."""
    share = ThreadShare(1)
    first = asyncio.create_task(share.run(math.inf, executor, work.do, 1))
    await until(lambda: work.begun == [1])
    with pytest.raises(RefusedError, match="until the deadline") as info:
        await share.run(time.monotonic(), executor, work.do, 2)
    assert info.value.reason is Reason.DEADLINE
    work.may_end.set()
    assert await first == 1
    assert await share.run(math.inf, executor, work.do, 3) == 3


async def test_a_call_is_answered_at_its_deadline_and_its_thread_counts_on(
    executor: ThreadPoolExecutor, work: Work
) -> None:
    """Bug: a change of a sequence was waited for as long as its commit took."""
    share = ThreadShare(1)
    with pytest.raises(RefusedError, match="goes on") as info:
        await share.run_until(time.monotonic() + 0.05, executor, work.do, 1)
    assert info.value.reason is Reason.DEADLINE
    await until(lambda: work.begun == [1])
    assert not share.is_idle
    work.may_end.set()
    assert await share.run_until(math.inf, executor, work.do, 2) == 2


class View:
    """What a function uses of an arena."""


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("is_waited_for", [True, False])
async def test_what_a_function_held_goes_when_it_raises(
    executor: ThreadPoolExecutor, is_waited_for: bool
) -> None:
    """*Bug:* a put that found its session closed kept the arena mapped, and its descriptor open.

    Its error kept the frames that it went through, which kept the future and so the error.
    """
    views: list[weakref.ref[View]] = []
    may_end = threading.Event()

    def put() -> None:
        view = View()
        views.append(weakref.ref(view))
        may_end.wait(PATIENCE_S)
        refuse(Reason.TOKEN_UNKNOWN, "the session is closed")

    share = ThreadShare(SHARE)
    call = asyncio.create_task(share.run(math.inf, executor, put))
    await until(lambda: bool(views))
    if not is_waited_for:
        call.cancel()
    may_end.set()
    await asyncio.gather(call, return_exceptions=True)
    await until(lambda: share.is_idle)
    assert views[0]() is None


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("way", [ThreadShare.run, ThreadShare.run_until], ids=["run", "run_until"])
async def test_what_a_function_was_given_goes_when_it_raises(
    executor: ThreadPoolExecutor, way: Callable[..., Awaitable[None]]
) -> None:
    """*Bug:* messages of refused calls stayed in memory: 8 MiB each, as long as nobody collected.

    The error kept the frames of those that waited for it, and that of the pool's thread.
    """

    def put(message: View) -> None:
        refuse(Reason.LAYOUT_UNKNOWN, f"{type(message)}")

    message = View()
    given = weakref.ref(message)
    share = ThreadShare(SHARE)
    with pytest.raises(RefusedError):
        await way(share, math.inf, executor, put, message)
    del message
    await until(lambda: share.is_idle)
    # The pool's thread lets go of its last task a moment after it has ended.
    await until(lambda: given() is None)


async def test_an_error_that_came_from_itself_ended_no_call(executor: ThreadPoolExecutor) -> None:
    """*Bug:* a kept error that was raised again, from one that it had caused, kept its thread."""
    kept = OSError("first")

    def put() -> None:
        try:
            try:
                raise kept
            except OSError as error:
                raise RuntimeError("second") from error
        except RuntimeError:
            raise kept  # noqa: B904

    with pytest.raises(OSError, match="first"):
        await ThreadShare(SHARE).run_until(time.monotonic() + PATIENCE_S, executor, put)
