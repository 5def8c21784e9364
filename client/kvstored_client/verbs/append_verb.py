"""The verb that adds the rows of one engine step to open sequences."""

from collections.abc import Sequence

from kvstored_client.errors import RegionStaleError, RequestInvalidError
from kvstored_client.session.limits import REPLY_GRACE_S
from kvstored_client.session.region import Region
from kvstored_client.session.session import Session
from kvstored_client.values import AppendItem, AppendReport
from kvstored_client.verbs import methods
from kvstored_client.verbs.call import Flow, Verb, ask, building
from kvstored_client.verbs.replies import append_report, unserved_report
from kvstored_client.verbs.requests import append_request
from kvstored_client.verbs.store_verbs import registered
from kvstored_contract.layout import StateLayout
from kvstored_contract.snapshot import SnapshotGeometry


def append(
    layout: StateLayout,
    snapshot: Region,
    row_count: int,
    items: Sequence[AppendItem],
    *,
    timeout_ms: int,
) -> Verb[AppendReport]:
    """Adds rows; see ``Client.append``."""

    def flow(session: Session) -> Flow[AppendReport]:
        if not items:
            return AppendReport(())
        if not snapshot.is_current or snapshot.arena is not session.arena:
            raise RegionStaleError("the snapshot was released or its session has ended")
        with building():
            geometry = SnapshotGeometry(layout, row_count)
        if geometry.byte_count > snapshot.byte_count:
            raise RequestInvalidError(
                f"a snapshot of {row_count} rows has {geometry.byte_count} bytes, the region "
                f"only {snapshot.byte_count}"
            )
        layout_id = yield from registered(session, layout)
        with building():
            request = append_request(
                layout_id=layout_id,
                snapshot_offset=snapshot.offset,
                row_count=row_count,
                items=items,
                timeout_ms=timeout_ms,
            )
        timeout_s = timeout_ms / 1000 + REPLY_GRACE_S
        reply = yield from ask(
            session, methods.APPEND, request, timeout_s=timeout_s, uses_arena=True
        )
        return append_report(reply, len(items))

    return Verb(
        name="append",
        flow=flow,
        missed=lambda error: unserved_report(error.reason, len(items)),
    )
