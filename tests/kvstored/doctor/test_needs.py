from dataclasses import replace

from kvstored.doctor.needs import FILES_OF_DAEMON, FILES_PER_SESSION
from tests.kvstored.doctor.machines import NEEDS


def test_each_session_takes_descriptors() -> None:
    assert NEEDS.open_files == FILES_OF_DAEMON + 64 * FILES_PER_SESSION
    assert replace(NEEDS, sessions=65).open_files - NEEDS.open_files == FILES_PER_SESSION
