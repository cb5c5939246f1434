"""What a server that cannot listen says."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from roquet.errors import CannotListen
from roquet.transport.listening import listening


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EADDRINUSE, "end what listens there, or choose another port"),
        (errno.EADDRNOTAVAIL, "set bindAddress to an address of this machine"),
        (errno.EACCES, "choose a port from 1024 on, or let this user listen there"),
    ],
)
def test_an_address_that_cannot_be_used_is_named_with_what_to_do(number: int, advice: str) -> None:
    with (
        pytest.raises(
            CannotListen,
            match=rf"^cannot listen on h:80 \(role\): {os.strerror(number)}; {advice}$",
        ),
        listening("h", 80, "role"),
    ):
        raise OSError(number, "error while attempting to bind")


def test_a_name_without_address_is_named() -> None:
    told = r"^cannot listen on h:80 \(role\): Name unknown; set bindAddress to an address of this machine$"
    with pytest.raises(CannotListen, match=told), listening("h", 80, "role"):
        raise socket.gaierror(socket.EAI_NONAME, "Name unknown")


def test_an_error_of_another_kind_stays_what_it_is() -> None:
    with pytest.raises(OSError, match="Too many open files"), listening("h", 80, "role"):
        raise OSError(errno.EMFILE, "Too many open files")
