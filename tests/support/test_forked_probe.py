import os
import select
import sys
from pathlib import Path

import pytest

from kvstored.store.index import probe as index_probe
from tests.support.forked_probe import ForkedProbe


def test_a_child_ended_by_sigabrt_where_threads_of_grpc_lost_their_descriptors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """gRPC runs in a forked child as well, and waits with epoll."""

    def say(descriptors: list[str]) -> None:
        sys.stdout.write(" ".join(one for one in descriptors if is_open(int(one))))

    monkeypatch.setattr(index_probe, "main", say)
    reader, writer = os.pipe()
    with (tmp_path / "locked").open("w") as file, select.epoll() as epoll:
        asked = [str(one) for one in (file.fileno(), epoll.fileno(), reader, writer)]
        with ForkedProbe(["python", "-m", "probe", *asked]) as child:
            output, errors = child.communicate()
    os.close(reader)
    os.close(writer)
    assert (child.returncode, errors) == (0, b"")
    assert output.decode().split() == [asked[1]]


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
