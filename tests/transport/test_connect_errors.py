"""Failed connections are explained in plain words, on each system and by each event loop."""

from __future__ import annotations

import errno
import socket

import pytest

from roquet.transport.connect_errors import connect_error

REFUSED = "[Errno 111] Connect call failed ('127.0.0.1', 9876)"
REFUSED_6 = "[Errno 111] Connect call failed ('::1', 9876, 0, 0)"
UNREACHABLE = "[Errno 101] Connect call failed ('2001:db8::1', 9876, 0, 0)"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('::1', 1)"), "Connection refused"),
        (OSError(f"Multiple exceptions: {REFUSED_6}, {REFUSED}"), "Connection refused"),
        (
            OSError(f"Multiple exceptions: {UNREACHABLE}, {REFUSED}"),
            "Network is unreachable; Connection refused",
        ),
        (OSError(errno.ETIMEDOUT, "Connect call failed"), "Connection timed out"),
        (TimeoutError(), "no answer in 1.5 s"),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "no address was found for host 'mq' (Name or service not known)",
        ),
        (UnicodeError("label empty or too long"), "'mq' is not a host name"),
        (OSError("something else"), "something else"),
    ],
)
@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="the numbers are those of Linux")
def test_an_error_is_told_by_its_meaning(error: Exception, text: str) -> None:
    assert connect_error("mq", error, 1.5) == text


def test_an_error_of_windows_keeps_its_text() -> None:
    class WindowsError(OSError):
        winerror = 1225

    error = WindowsError(1225, "The remote computer refused the network connection")

    assert connect_error("mq", error, 1.5) == "The remote computer refused the network connection"
