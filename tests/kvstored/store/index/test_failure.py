"""Which errors of LMDB are damage of the index, and which only circumstances."""

import errno
import os

import lmdb
import pytest

from kvstored.store.index.failure import IndexDamagedError, failure_of

CIRCUMSTANCES = (errno.ENOENT, errno.EMFILE, errno.EPERM, errno.EROFS, errno.ESTALE)
DAMAGE = (errno.EIO, errno.EUCLEAN, errno.EBADF)


class CodedError(lmdb.Error):
    """As the binding raises it: with the number that LMDB returned."""

    def __init__(self, code: int) -> None:
        super().__init__("mdb_env_open")
        vars(self)["code"] = code


def is_damage(error: lmdb.Error | OSError) -> bool:
    return isinstance(failure_of("planned", error), IndexDamagedError)


@pytest.mark.parametrize("number", CIRCUMSTANCES)
def test_an_error_of_the_system_was_damage(number: int) -> None:
    """Bug: the start set a sound index aside because a descriptor, say, was missing."""
    assert not is_damage(CodedError(number))
    assert not is_damage(lmdb.Error(f"/index: {os.strerror(number)}"))


@pytest.mark.parametrize("number", DAMAGE)
def test_bytes_that_the_medium_has_lost_are_damage(number: int) -> None:
    assert is_damage(CodedError(number))
    assert is_damage(lmdb.Error(f"/index: {os.strerror(number)}"))


@pytest.mark.parametrize(
    "error",
    [
        CodedError(-30796),
        CodedError(0),
        lmdb.Error("mdb_get: MDB_BAD_TXN: Transaction must abort, has a child, or is invalid"),
        lmdb.CorruptedError("planned"),
        lmdb.PanicError("planned"),
    ],
    ids=str,
)
def test_errors_of_lmdb_itself_are_damage(error: lmdb.Error) -> None:
    assert is_damage(error)


@pytest.mark.parametrize("error", [lmdb.DiskError("planned"), OSError(errno.EIO, "planned")])
def test_what_else_the_system_refuses_is_none(error: lmdb.Error | OSError) -> None:
    assert not is_damage(error)
