"""Who a client says it is: `ip@pid#unique`.

See docs/protocol/consuming.md#client-ids.
"""

from __future__ import annotations

import os
import random
import socket
from ipaddress import ip_address

_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses of no host; asking for the way there sends nothing."""


def new_client_id(chance: random.Random) -> str:
    """An id that no other client has (docs/pitfalls.md#trap-65)."""
    return f"{local_address()}@{os.getpid()}#{chance.getrandbits(48):012x}"


def local_address() -> str:
    """The address this host would use to reach others; loopback where there is no way out."""
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def address_bytes(client_id: str, chance: random.Random) -> bytes:
    """The address in a client id as 4 or 16 bytes; random ones for an id that starts with no address."""
    try:
        return ip_address(client_id.partition("@")[0]).packed
    except ValueError:
        return chance.randbytes(4)
