"""What a server says that cannot listen."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from socket import gaierror
from typing import Final

from roquet.errors import CannotListen

_OTHER_ADDRESS: Final = "set bindAddress to an address of this machine"
_ADVICE: Final = {
    errno.EADDRINUSE: "end what listens there, or choose another port",
    errno.EADDRNOTAVAIL: _OTHER_ADDRESS,
    errno.EACCES: "choose a port from 1024 on, or let this user listen there",
}


@contextmanager
def listening(host: str, port: int, role: str) -> Iterator[None]:
    """Let the error of a server that begins to listen say where, for what, and what to do: a broker has three ports.

    :param role: what the port is for, and the setting that it comes from.
    :raises CannotListen: instead of the error of the system, where that is about the address.
    """
    try:
        yield
    except gaierror as error:
        reason, advice = error.strerror, _OTHER_ADDRESS
        raise CannotListen(
            f"cannot listen on {host}:{port} ({role}): {reason}; {advice}"
        ) from error
    except OSError as error:
        if error.errno not in _ADVICE:
            raise
        reason, advice = os.strerror(error.errno), _ADVICE[error.errno]
        raise CannotListen(
            f"cannot listen on {host}:{port} ({role}): {reason}; {advice}"
        ) from error
