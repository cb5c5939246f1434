"""Turns an error of a request into its response: the only place where errors get response codes."""

from __future__ import annotations

import logging
import os
import traceback
from typing import Final

from roquet.errors import (
    NO_ROOM,
    DispatchHeldUp,
    DriveSlow,
    PeerError,
    Refused,
    StoreBusy,
    UnreadableFile,
)
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.peers import Named, Peers

log = logging.getLogger(__name__)

_REMARK_MAX: Final = 1000
"""Characters of an error repeated in a remark or a log line: the error may quote the request."""


def failure(request: Command, error: Exception, peer: Named, peers: Peers) -> Command:
    """The response to a request of `peer` that failed with `error`. Unexpected errors are logged.

    :raises PeerError: `error` is one; the caller ends the connection.
    """
    match error:
        case PeerError():
            raise error
        case Refused():
            return request.answer(error.code, error.remark)
        case DispatchHeldUp():
            return request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
        case DriveSlow():
            # Apache's remark, with the code that producers retry (docs/pitfalls.md#trap-s28)
            remark = f"[PC_SYNCHRONIZED]broker busy: {error}"
            return request.answer(ResponseCode.SYSTEM_ERROR, remark)
        case StoreBusy():
            return request.answer(ResponseCode.SYSTEM_ERROR, str(error))
        case ValueError():
            return request.answer(
                ResponseCode.SYSTEM_ERROR, f"request {request.code}: {error}"[:_REMARK_MAX]
            )
        case UnreadableFile():
            pass  # the store logs it once, not for each request that reads the file
        case OSError() if error.errno in NO_ROOM:
            peers.no_room(request.code, error)
            reason = os.strerror(error.errno)
            remark = f"request {request.code}: no room on this server's drive ({reason})"
            return request.answer(ResponseCode.SYSTEM_ERROR, remark)
        case OSError():
            peers.failed(peer, request.code, str(error))
        case _:
            peers.failed(peer, request.code, _in_one_line(error))
            log.debug(
                "request failed: code=%s peer=%s", request.code, peer.peer_address, exc_info=error
            )
    return request.answer(
        ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"[:_REMARK_MAX]
    )


def _in_one_line(error: Exception) -> str:
    """Type, text and place of an error for a log line; the traceback is logged at DEBUG."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{text[:_REMARK_MAX]}{where}"
