"""How many connections there may be, and whose go when there are more."""

import pytest

from kvstored.server.connections import (
    CONNECTIONS_PER_SESSION,
    LOG_INTERVAL_S,
    REMOTE_CONNECTIONS_MAX,
    SESSION_CONNECTIONS_MAX,
    ConnectionLimits,
    ConnectionShares,
    LogPause,
)


@pytest.mark.parametrize("sessions_max", [1, 80, 4112])
@pytest.mark.parametrize("open_files_max", [1, 20, 1024, 65_536, 2**63])
def test_connections_leave_a_part_of_the_descriptors_to_everything_else(
    sessions_max: int, open_files_max: int
) -> None:
    """Bug: there was no bound, and one user could take the last descriptor."""
    limits = ConnectionLimits.of(sessions_max=sessions_max, open_files_max=open_files_max)
    taken = limits.session + limits.grpc + limits.remote
    assert taken <= max(3, open_files_max * 5 // 8)
    assert 1 <= limits.grpc_shared <= limits.grpc


def test_a_large_machine_has_a_place_for_every_session() -> None:
    limits = ConnectionLimits.of(sessions_max=80, open_files_max=65_536)
    assert limits.grpc == CONNECTIONS_PER_SESSION * 80
    assert limits.grpc_shared >= 2 * 80
    assert limits.session == SESSION_CONNECTIONS_MAX
    assert limits.remote == REMOTE_CONNECTIONS_MAX


def test_the_peer_with_the_most_loses_its_last() -> None:
    shares: ConnectionShares[str, int] = ConnectionShares(4)
    assert [shares.add("greedy", number) for number in range(4)] == [None] * 4
    assert shares.add("other", 10) == 3
    assert shares.add("greedy", 4) == 4
    assert shares.add("other", 11) == 2
    assert len(shares) == 4


def test_where_all_have_as_many_the_last_one_goes() -> None:
    """Else each that comes would end one of the others."""
    shares: ConnectionShares[str, int] = ConnectionShares(2)
    assert shares.add("a", 1) is None
    assert shares.add("b", 2) is None
    assert shares.add("a", 3) == 3
    assert shares.add("b", 4) == 4
    # Its only one, and one more than there may be.
    assert shares.add("c", 5) == 5


def test_the_first_may_go_instead() -> None:
    shares: ConnectionShares[str, int] = ConnectionShares(2, ends_first=True)
    assert shares.add("a", 1) is None
    assert shares.add("a", 2) is None
    assert shares.add("a", 3) == 1
    assert shares.add("b", 4) == 2


def test_what_is_over_makes_room() -> None:
    shares: ConnectionShares[str, int] = ConnectionShares(2)
    shares.add("a", 1)
    shares.add("a", 2)
    shares.remove(1)
    shares.remove(1)
    assert shares.add("b", 3) is None
    shares.remove(3)
    assert len(shares) == 1


def test_what_goes_on_is_logged_at_once_and_then_seldom() -> None:
    pause = LogPause()
    moments = [0.0, 1.0, LOG_INTERVAL_S - 1, LOG_INTERVAL_S, LOG_INTERVAL_S + 1]
    assert [pause.is_over(now) for now in moments] == [True, False, False, True, False]
