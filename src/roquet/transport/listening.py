"""Error texts of a server that cannot listen on its port."""

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
    """Context manager that turns errors of listening into `CannotListen`.

    A broker has three ports, so the message names the address, the port's role and what to do.

    :param role: what the port is for, and the name of its setting.
    :raises CannotListen: instead of an OSError that is about the address or port.
    """
    try:
        yield
    except gaierror as error:
        raise CannotListen(
            f"cannot listen on {host}:{port} ({role}): {error.strerror}; {_OTHER_ADDRESS}"
        ) from error
    except OSError as error:
        if error.errno not in _ADVICE:
            raise
        reason = os.strerror(error.errno)
        advice = _ADVICE[error.errno]
        raise CannotListen(
            f"cannot listen on {host}:{port} ({role}): {reason}; {advice}"
        ) from error
