"""What uses an arena: reads in flight are limited."""

from typing import cast

import pytest

from kvstored.server.errors import RefusedError
from kvstored.server.held import arena_use
from kvstored.server.held.arena_use import ArenaUse
from kvstored.store.read.read_stream import ReadStream
from kvstored_contract.reasons import Reason
from tests.kvstored.server.fake_store import FakeStream


@pytest.fixture
def use() -> ArenaUse:
    return ArenaUse(lambda _: None)


def test_reads_are_limited(use: ArenaUse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_use, "READS_PER_SESSION_MAX", 1)
    stream = FakeStream()
    use.check_read_limit()
    use.add_read(cast("ReadStream", stream))
    with pytest.raises(RefusedError) as info:
        use.check_read_limit()
    assert info.value.reason is Reason.LIMIT_EXCEEDED
    stream.finish()
    use.check_read_limit()


def test_chunks_of_reads_are_limited(use: ArenaUse, monkeypatch: pytest.MonkeyPatch) -> None:
    """One read may have more than the limit: with nothing else in flight it is let in."""
    monkeypatch.setattr(arena_use, "READ_CHUNKS_PER_SESSION_MAX", 4)
    use.check_read_limit(5)
    stream = FakeStream()
    use.add_read(cast("ReadStream", stream), 3)
    use.check_read_limit(1)
    with pytest.raises(RefusedError) as info:
        use.check_read_limit(2)
    assert info.value.reason is Reason.LIMIT_EXCEEDED
    stream.finish()
    use.check_read_limit(2)
