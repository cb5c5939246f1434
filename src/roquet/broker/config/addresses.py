"""Which address and ports a broker has where its configuration does not say."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from roquet.errors import ConfigError

_ATTEMPTS: Final = 100
_PORTS: Final = range(10_000, 32_000)
"""Below the ports that systems give to outgoing connections (from 32,768 on with Linux, 49,152 with
others). Those are all taken where thousands of connections ended within the last minute, and the
next connection may take one between the moment when it is found free and the start of the server."""
_LOOPBACK: Final = "127.0.0.1"
_SOMEWHERE: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses of no host (RFC 5737, RFC 3849): only the way to them is asked for, nothing is sent."""


def own_address() -> str:
    """The address under which others most likely reach this host."""
    return preferred_address(_candidates())


def preferred_address(candidates: Iterable[str]) -> str:
    """Apache's choice: an IPv4 address that is not private to one site, else any IPv4, else IPv6, else loopback.

    Only 192.168 counts as private to a site (docs/broker/configuration.md#what-is-advertised).
    """
    addresses = [address for address in map(ip_address, candidates) if not _is_local(address)]
    v4 = [str(address) for address in addresses if isinstance(address, IPv4Address)]
    v6 = [str(address) for address in addresses if isinstance(address, IPv6Address)]
    wide = [address for address in v4 if not address.startswith("192.168.")]
    return next(iter([*wide, *reversed(v4), *v6, _LOOPBACK]))


def _is_local(address: IPv4Address | IPv6Address) -> bool:
    return address.is_loopback or address.is_link_local or address.is_unspecified


def _candidates() -> list[str]:
    """Where packets to elsewhere would leave from, then what the host's own name stands for."""
    found: list[str] = []
    for family, elsewhere in _SOMEWHERE:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))
            found.append(probe.getsockname()[0])
    with suppress(OSError):
        found += [
            str(item[4][0])
            for item in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        ]
    return [address.partition("%")[0] for address in found]


def free_listen_port(host: str) -> int:
    """A port that is free on `host` together with the two beside it that a broker needs: - 2 and + 1.

    :raises ConfigError: none was found.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(_ATTEMPTS):
        with ExitStack() as taken, suppress(OSError):
            port = random.choice(_PORTS)
            for needed in (port - 2, port, port + 1):
                _take(taken, family, host, needed)
            return port
    raise ConfigError(f"listenPort=0: no three free ports were found on {host}, give one")


def _take(taken: ExitStack, family: socket.AddressFamily, host: str, port: int) -> None:
    listener = taken.enter_context(socket.socket(family, socket.SOCK_STREAM))
    listener.bind((host, port))
