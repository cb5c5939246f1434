"""Chooses the address and the ports of a broker whose configuration names none."""

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
"""Below the ports of outgoing connections (from 32,768 on Linux, from 49,152 on other systems).
Those may all be taken after thousands of connections have ended within a minute. An outgoing
connection may also take one after it was found free and before the server listens on it."""
_LOOPBACK: Final = "127.0.0.1"
_OTHER_HOSTS: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses of no host (RFC 5737, RFC 3849), to ask the system for a route; nothing is sent."""


def own_address() -> str:
    """The address at which other hosts most likely reach this host."""
    return preferred_address(_candidates())


def preferred_address(candidates: Iterable[str]) -> str:
    """Choose an address as Apache does: any IPv4 outside 192.168, else IPv4, IPv6, loopback.

    See docs/broker/configuration.md#what-is-advertised.
    """
    addresses = [address for address in map(ip_address, candidates) if not _is_local(address)]
    v4 = [str(address) for address in addresses if isinstance(address, IPv4Address)]
    v6 = [str(address) for address in addresses if isinstance(address, IPv6Address)]
    preferred = [address for address in v4 if not address.startswith("192.168.")]
    # of those in 192.168 the last, as Apache does
    return next(iter([*preferred, *reversed(v4), *v6, _LOOPBACK]))


def _is_local(address: IPv4Address | IPv6Address) -> bool:
    return address.is_loopback or address.is_link_local or address.is_unspecified


def _candidates() -> list[str]:
    """The source addresses of the routes to other hosts, then the addresses of the host's name."""
    found: list[str] = []
    for family, address in _OTHER_HOSTS:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # of a datagram socket: the system chooses a route, no more
            found.append(probe.getsockname()[0])
    with suppress(OSError):
        found += [
            str(item[4][0])
            for item in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        ]
    return [address.partition("%")[0] for address in found]


def free_listen_port(host: str) -> int:
    """A free port on `host` whose neighbours - 2 and + 1, which a broker needs, are free, too.

    :raises ConfigError: no such port was found.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(_ATTEMPTS):
        with ExitStack() as taken, suppress(OSError):
            port = random.choice(_PORTS)
            for needed in (port - 2, port, port + 1):
                _bind(taken, family, host, needed)
            return port
    raise ConfigError(f"listenPort=0: no three free ports were found on {host}, set a port")


def _bind(taken: ExitStack, family: socket.AddressFamily, host: str, port: int) -> None:
    """Hold a port until `taken` is closed. Raises OSError if another program has it."""
    listener = taken.enter_context(socket.socket(family, socket.SOCK_STREAM))
    listener.bind((host, port))
