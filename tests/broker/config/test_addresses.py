"""Which address a broker tells others where none is configured.

See docs/broker/configuration.md#what-is-advertised.
"""

from __future__ import annotations

import socket
from typing import Final

import pytest

from roquet.broker.config import addresses
from roquet.broker.config.addresses import free_listen_port, own_address, preferred_address
from roquet.errors import ConfigError

LOOPBACK: Final = "127.0.0.1"


@pytest.mark.parametrize(
    ("candidates", "preferred"),
    [
        (["127.0.0.1", "192.168.1.5", "10.0.0.7", "10.0.0.8"], "10.0.0.7"),
        (["192.168.1.5", "192.168.1.6", "fd00::1"], "192.168.1.6"),
        (["127.0.1.1", "::1", "fe80::1", "fd00::1"], "fd00::1"),
        (["127.0.0.1", "0.0.0.0", "169.254.0.9"], "127.0.0.1"),
        ([], "127.0.0.1"),
    ],
)
def test_the_address_others_most_likely_reach_is_preferred(
    candidates: list[str], preferred: str
) -> None:
    assert preferred_address(candidates) == preferred


def test_this_machine_has_an_address() -> None:
    assert own_address()


def test_a_free_port_leaves_room_for_the_one_two_below() -> None:
    assert free_listen_port(LOOPBACK) > 2


def test_a_free_port_is_none_that_outgoing_connections_get() -> None:
    assert all(free_listen_port(LOOPBACK) < 32_768 for _ in range(20))


def test_a_port_beside_which_somebody_listens_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_listen_port(LOOPBACK)
    with socket.create_server((LOOPBACK, port)):
        monkeypatch.setattr(addresses, "_PORTS", [port - 1, port, port + 2])
        with pytest.raises(ConfigError, match="no three free ports"):
            free_listen_port(LOOPBACK)
