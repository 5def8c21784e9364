"""What ``kvstored inspect`` shows of a chunk."""

import pytest

from kvstored.cli.inspect_command import report_of
from kvstored_protos.v1 import admin_pb2, common_pb2


def reply(layout: common_pb2.StateLayout | None) -> admin_pb2.InspectReply:
    return admin_pb2.InspectReply(
        chunk=admin_pb2.ChunkInfo(key=bytes(32)),
        slices=[admin_pb2.SliceInfo(bytes=5, checksum=1)],
        layout=layout,
    )


@pytest.mark.parametrize(
    ("layout", "codec"),
    [
        (common_pb2.StateLayout(model="m", codec="zstd"), "zstd"),
        (common_pb2.StateLayout(model="m"), "raw"),
        (None, ""),
    ],
)
def test_a_chunk_of_a_lost_layout_was_said_to_be_raw(
    layout: common_pb2.StateLayout | None, codec: str
) -> None:
    report = report_of(reply(layout))
    assert report.values["codec"] == codec
    assert report.rows == [(0, "", "", 5, "0000000000000001")]
