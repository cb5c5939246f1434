"""Every exception of the project on one page, each with what its reader can do about it."""

from __future__ import annotations

import errno
from typing import Final

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
"""What an `OSError` has as its `errno` where something does not fit: this says nothing of the files that are there."""


class RoquetError(Exception):
    """The root of all errors raised on purpose by roquet."""


class PeerError(RoquetError):
    """The other side broke the protocol; its connection is closed, nothing else is touched."""


class Refused(RoquetError):  # noqa: N818 - a refusal is an answer, not a failure of the program
    """A handler says no: the caller gets `code` and `remark` as the response.

    `code` is a `ResponseCode` (docs/protocol/request-codes.md#response-codes).
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{remark} (code {code})")
        self.code = code
        self.remark = remark


class ResponseError(RoquetError):
    """A peer answered a call with an error code: `code`, `remark` and `address` say which, why and who."""

    def __init__(self, code: int, remark: str, address: str) -> None:
        super().__init__(f"{address} answered code {code}: {remark}")
        self.code = code
        self.remark = remark
        self.address = address


class AccessDenied(ResponseError):  # noqa: N818
    """A broker's access control said no: credentials are wrong or missing, or lack a permission; says what to do."""

    def __init__(self, code: int, remark: str, address: str, advice: str) -> None:
        super().__init__(code, remark, address)
        self.args = (f"{address} denies access: {remark}; {advice}",)


class ConnectionClosed(RoquetError):  # noqa: N818
    """The connection ended before the answer came; the request may or may not have been carried out."""


class TlsError(ConnectionClosed):
    """No TLS connection came about: nothing was sent. The message says why, and what to do."""


class CallTimeout(RoquetError):  # noqa: N818
    """No answer in time; the request may or may not have been carried out."""


class RouteNotFound(RoquetError):  # noqa: N818
    """No name server knows a broker for this topic: create it, or check the name server's address."""


class CorruptRecord(RoquetError):  # noqa: N818
    """The bytes at physical offset `at` are no record; recovery and dispatch look for the next valid one, a reader
    stops there."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(f"no valid record at physical offset {at}: {reason}")
        self.at = at
        self.reason = reason


class StoreError(RoquetError):
    """The store directory cannot be used as it is; the message names the file and what to do."""


class UnreadableFile(OSError):  # noqa: N818
    """A file of the store cannot be read, or has lost bytes; who noticed it first has told of it, once per file."""


class DamagedFiles(StoreError):  # noqa: N818
    """Files of one range are missing, or have not the size that they were made with. `advice` is for those who cannot
    make them anew.
    """

    def __init__(self, damage: str, advice: str) -> None:
        super().__init__(damage)
        self.advice = advice


class DriveFailed(StoreError):  # noqa: N818
    """A sync of the store has failed: what was written since the last one may be nowhere. The process has to end."""


class NotWritten(StoreError):  # noqa: N818
    """A broker has stopped without writing everything; its next start recovers as after a crash."""


class CannotListen(RoquetError):  # noqa: N818
    """A server cannot listen on one of its ports; the message says on which, what it is for, and what to do."""


class ConfigError(RoquetError):
    """A configuration value cannot be used; the message names the key, the value and what is allowed."""


class FilterError(RoquetError):
    """A filter expression cannot be used; `position` says where (characters, from 1), the message also why."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"filter expression, position {position}: {reason}")
        self.position = position
        self.reason = reason


class MessageError(RoquetError):
    """A message cannot be sent as it is (topic, properties or body), or a received body cannot be had as it was sent;
    the message says which rule it breaks.
    """


class DamagedBody(MessageError):  # noqa: N818
    """A received body is not the one that was stored; `roquet store check` finds it in the broker's files."""


LASTING = (AccessDenied, TlsError)
"""What one more try would only meet again."""
