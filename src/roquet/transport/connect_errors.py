"""Says in plain words why a connection could not be opened."""

from __future__ import annotations

import os
import re
import socket
from typing import Final

_NUMBER: Final = re.compile(r"\[Errno (\d+)\]")


def connect_error(host: str, error: Exception, timeout_s: float) -> str:
    """Return the reason, without the address: the caller has named it.

    asyncio's own texts have the error's number and the address again: `[Errno 111] Connect call
    failed ('127.0.0.1', 9876)`. For a host name with several addresses it joins these texts to one.

    :param timeout_s: the seconds after which the attempt was given up.
    """
    match error:
        case UnicodeError():
            return f"{host!r} is not a host name"
        case socket.gaierror():
            return f"no address was found for host {host!r} ({error.strerror})"
        case OSError(errno=number) if number is not None:
            return _text_of(number, error)
        case TimeoutError():
            return f"no answer in {timeout_s:g} s"
    numbers = dict.fromkeys(map(int, _NUMBER.findall(str(error))))
    return "; ".join(map(os.strerror, numbers)) or str(error)


def _text_of(number: int, error: OSError) -> str:
    """Windows has numbers of its own, and texts of its own for them."""
    is_of_windows = getattr(error, "winerror", None) is not None
    return str(error.strerror) if is_of_windows else os.strerror(number)
