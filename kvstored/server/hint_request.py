"""What a message about an engine's queue asks of the tiers."""

from kvstored.server import fields
from kvstored.server.errors import refuse
from kvstored.server.session import Session
from kvstored.tiers.hints.queue_change import NamedEntry, QueueChange
from kvstored.turnstile import TURNSTILE
from kvstored_contract.limits import PLACE_MAX, WAITING_PER_SESSION_MAX
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import sequence_pb2

VERSION_MAX = 2**63


def queue_change(request: sequence_pb2.HintRequest, session: Session) -> QueueChange:
    """The change that a message tells of; raises RefusedError."""
    for names in (request.entered, request.left):
        if len(names) > WAITING_PER_SESSION_MAX:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"the hint names {len(names)} requests; at most {WAITING_PER_SESSION_MAX} wait: "
                "name the first ones",
            )
    key_count = sum(len(entry.keys) for entry in request.entered)
    if key_count:
        fields.check_chunk_count(key_count)
    version = fields.bounded(request.version, "version", least=1, most=VERSION_MAX)
    return QueueChange(
        version=version,
        previous_version=fields.bounded(
            request.previous_version, "previous_version", least=0, most=version - 1
        ),
        entered=tuple(
            [_entry(entry, session) for part in TURNSTILE.parts(request.entered) for entry in part]
        ),
        left=tuple([fields.sequence_name(name, "left") for name in request.left]),
        layouts=session.layouts.known,
    )


def _entry(entry: sequence_pb2.QueueEntry, session: Session) -> NamedEntry:
    keys = fields.checked_keys(entry.keys) if entry.keys else ()
    layout_id = session.layouts.find(entry.layout_id).layout_id if keys else b""
    return NamedEntry(
        name=fields.sequence_name(entry.name),
        place=fields.bounded(entry.place, "place", least=0, most=PLACE_MAX),
        keys=keys,
        layout_id=layout_id,
    )
