"""The exceptions that several packages share. Each derives from `RoquetError`."""

from __future__ import annotations

import errno
from typing import Final

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
"""The `errno` of an `OSError` if the drive is full. Files that exist are not damaged by it."""


class RoquetError(Exception):
    """The base class of all errors that roquet raises on purpose.

    They can be pickled, so that a pool of processes hands them on.
    """

    def __reduce__(self) -> tuple[object, ...]:
        # Python would call the class with `args`, the one text, where it takes several arguments.
        return _restored, (type(self), self.args), self.__dict__


def _restored(cls: type[RoquetError], args: tuple[object, ...]) -> RoquetError:
    return cls.__new__(cls, *args)


class PeerError(RoquetError):
    """The peer broke the protocol. Only its connection is closed."""


class Refused(RoquetError):  # noqa: N818 - a refusal is an answer, not a failure of the program
    """A handler refuses a request: `code` and `remark` are sent as the response.

    `code` is a `ResponseCode` (docs/protocol/request-codes.md#response-codes).
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{remark} (code {code})")
        self.code = code
        self.remark = remark


class ResponseError(RoquetError):
    """A peer answered a request with an error code.

    `code` is the `ResponseCode`, `remark` the peer's reason, `address` the peer.
    """

    def __init__(self, code: int, remark: str, address: str) -> None:
        super().__init__(f"{address} answered code {code}: {remark.strip()}")
        self.code = code
        self.remark = remark
        self.address = address


class AccessDenied(ResponseError):  # noqa: N818
    """A broker's access control refused a request; the message says what to do.

    The credentials are missing or wrong, or the account lacks a permission.
    """

    def __init__(self, code: int, remark: str, address: str, advice: str) -> None:
        super().__init__(code, remark, address)
        self.args = (f"{address} denies access: {remark}; {advice}",)


class ConnectionClosed(RoquetError):  # noqa: N818
    """The connection ended before the response came. The request may have been carried out."""


class TlsError(ConnectionClosed):
    """The TLS handshake failed, nothing was sent. The message says why, and what to do."""


class CallTimeout(RoquetError):  # noqa: N818
    """No response came in time. The request may have been carried out."""


class RouteNotFound(RoquetError):  # noqa: N818
    """No name server knows a route of the topic.

    Create it, start its brokers, or check the name server's address.
    """


class CorruptRecord(RoquetError):  # noqa: N818
    """The bytes at physical offset `at` are no valid record.

    Recovery and dispatch look for the next valid record, a reader stops there.
    """

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(f"no valid record at physical offset {at}: {reason}")
        self.at = at
        self.reason = reason


class StoreError(RoquetError):
    """The store directory cannot be used as it is; the message names the file and what to do."""


class StoreBusy(RoquetError):  # noqa: N818
    """The store wrote nothing of a record; once the named reason has gone it may accept it."""


class DispatchHeldUp(StoreBusy):
    """Queue entries of earlier records cannot be written, so no record may get a queue offset.

    The message says what the entries wait for.
    """


class DriveSlow(StoreBusy):
    """The records before this one took too long to store (`osPageCacheBusyTimeOutMills`)."""


class UnreadableFile(OSError):  # noqa: N818
    """A file of the store cannot be read, or is shorter than it was. It was logged already."""


class DamagedFiles(StoreError):  # noqa: N818
    """Segments are missing or do not have their size.

    `advice` says what to do if they cannot be rebuilt.
    """

    def __init__(self, damage: str, advice: str) -> None:
        super().__init__(damage)
        self.advice = advice


class DriveFailed(StoreError):  # noqa: N818
    """A sync of the store failed: writes since the last one may be lost. The process must end."""


class NotWritten(StoreError):  # noqa: N818
    """A broker stopped without writing everything; its next start recovers as after a crash."""


class CannotListen(RoquetError):  # noqa: N818
    """A server cannot listen on a port; the message names the port and its role, and what to do."""


class ConfigError(RoquetError):
    """A setting cannot be used; the message names it, its value and what is allowed."""


class ClusterStateError(RoquetError):
    """A program of a test cluster (`roquet.dev.Cluster`) is in no state for what was asked."""


class ClientStateError(RoquetError):
    """A client was used before its start, after its close, or in another event loop or process.

    The message says what to do.
    """


class OptionError(RoquetError):
    """An option of a Spark source, sink or job is invalid.

    The message names the option and the valid values.
    """


class FilterError(RoquetError):
    """A filter expression is invalid. `position` is where, in characters from 1."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"filter expression, position {position}: {reason}")
        self.position = position
        self.reason = reason


class MessageError(RoquetError):
    """A message breaks a rule, which the error names.

    It cannot be sent as it is (topic, properties or body), or a received body cannot be decoded.
    """


class DamagedBody(MessageError):  # noqa: N818
    """A received body is damaged; `roquet store check` finds its record in the broker's files."""


LASTING = (AccessDenied, TlsError)
"""Errors that a retry would meet again."""
