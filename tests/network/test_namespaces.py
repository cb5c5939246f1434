from __future__ import annotations

import os
import socket
import subprocess
import time

import pytest

from tests.network.link import CUT, GOOD, Quality
from tests.network.namespaces import Network, require_network

pytestmark = pytest.mark.process

PORT = 5000


@pytest.fixture(autouse=True)
def _network() -> None:
    require_network()


def listening(network: Network, name: str) -> socket.socket:
    with network.at(name):
        return socket.create_server((network.hosts[name].ip, PORT))


def connected(network: Network, source: str, target: str) -> socket.socket:
    with network.at(source):
        return socket.create_connection((network.hosts[target].ip, PORT), timeout=10)


def test_every_host_hears_every_other() -> None:
    with Network("a", "b", "c") as network, listening(network, "b") as door:
        for name in ("a", "c"):
            with connected(network, name, "b") as client:
                client.sendall(name.encode())
                server, (ip, _) = door.accept()
                assert (ip, server.recv(10)) == (network.hosts[name].ip, name.encode())
                server.close()


def test_a_link_with_200_ms_takes_a_round_trip_to_connect_and_others_do_not() -> None:
    with Network("a", "b", "c") as network, listening(network, "b"):
        network.link("a", "b", Quality(delay_s=0.2))
        begin_s = time.monotonic()
        connected(network, "a", "b").close()
        far_s = time.monotonic() - begin_s
        connected(network, "c", "b").close()
        assert far_s >= 0.4 > time.monotonic() - begin_s - far_s


def test_what_is_sent_into_a_cut_arrives_after_it() -> None:
    with (
        Network("a", "b") as network,
        listening(network, "b") as door,
        connected(network, "a", "b") as client,
    ):
        server, _ = door.accept()
        network.link("a", "b", CUT)
        client.sendall(b"late")
        server.settimeout(0.3)
        with pytest.raises(TimeoutError):
            server.recv(10)
        network.link("a", "b", GOOD)
        server.settimeout(10)
        assert server.recv(10) == b"late"
        server.close()


def test_a_link_that_is_cut_one_way_takes_the_other() -> None:
    with (
        Network("a", "b") as network,
        listening(network, "b") as door,
        connected(network, "a", "b") as client,
    ):
        server, _ = door.accept()
        network.one_way("b", "a", CUT)
        client.sendall(b"heard")
        assert server.recv(10) == b"heard"
        server.sendall(b"not heard")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(10)
        server.close()


def test_nothing_of_a_network_stays_behind_also_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError), Network("a", "b"):
        raise ZeroDivisionError
    listed = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout
    assert f"roquet-{os.getpid()}-" not in listed
