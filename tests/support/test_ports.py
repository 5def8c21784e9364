from pathlib import Path

from tests.support.ports import free_port


def test_a_port_could_be_taken_by_a_connection_before_the_server_listened() -> None:
    """Bug: it was one of those that the system gives to connections."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = [free_port() for _ in range(20)]
    assert max(ports) < first
    assert len(set(ports)) > 1
