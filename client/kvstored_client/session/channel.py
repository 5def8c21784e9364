"""How a gRPC channel to the daemon is set up, and what its errors mean."""

from typing import Any, Final

from kvstored_client.errors import StoreError, error_of_status
from kvstored_contract.limits import GRPC_MESSAGE_BYTES_MAX

CHANNEL_OPTIONS: Final[list[tuple[str, int]]] = [
    ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
    # A restarted daemon listens at the same target: without its own pool a new channel
    # would inherit the back-off of the dead one.
    ("grpc.use_local_subchannel_pool", 1),
]


def typed(error: Any) -> StoreError:
    """The typed error of a failed call, sync or asyncio."""
    return error_of_status(error.code(), error.details() or "", error.trailing_metadata() or ())
