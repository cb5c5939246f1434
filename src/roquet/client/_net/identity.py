"""Client ids: `ip@pid#random`, or `ip@pid#random@unit`.

See docs/protocol/consuming.md#client-ids.
"""

from __future__ import annotations

import os
import random
import socket
from ipaddress import ip_address

_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses for documentation, which no host has. `connect` of a UDP socket sends nothing."""


def new_client_id(chance: random.Random, unit_name: str | None = None) -> str:
    """A client id that no other client has (docs/pitfalls.md#trap-65)."""
    unit = "" if unit_name is None else f"@{unit_name}"
    return f"{local_address()}@{os.getpid()}#{chance.getrandbits(48):012x}{unit}"


def local_address() -> str:
    """The address from which this host reaches other hosts; loopback if it has no route to them."""
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def address_bytes(client_id: str, chance: random.Random) -> bytes:
    """The address in a client id, as 4 or 16 bytes; 4 random bytes if the id has no address."""
    try:
        return ip_address(client_id.partition("@")[0]).packed
    except ValueError:
        return chance.randbytes(4)
