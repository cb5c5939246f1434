"""The programs of a test cluster fail as processes do."""

from __future__ import annotations

import socket

import pytest

from roquet.dev import NAME_SERVER, Cluster
from roquet.errors import ClusterStateError
from tests.interop import wire


def end_of(cluster: Cluster) -> int:
    return cluster.ask(lambda broker: broker.store.max_offset("orders", 0))


def send(cluster: Cluster) -> int:
    fields = wire.send_fields("orders", 0, "UNIQ_KEY\x01A")
    return wire.ask(cluster.address(), wire.SEND_MESSAGE, fields, b"body").code


def test_a_paused_broker_accepts_bytes_and_answers_them_once_it_goes_on() -> None:
    with Cluster() as cluster:
        with cluster.pause():
            link = socket.create_connection(wire.parse_address(cluster.address()), 5)
            link.sendall(wire.request(wire.SEND_MESSAGE, wire.send_fields("orders", 0, ""), b"b"))
            link.settimeout(0.05)
            with pytest.raises(TimeoutError):
                link.recv(1)
        link.settimeout(10)

        assert link.recv(4) != b""
        assert end_of(cluster) == 1
        link.close()


def test_what_a_paused_broker_got_is_lost_if_it_is_killed() -> None:
    with Cluster() as cluster:
        assert send(cluster) == 0
        link = socket.create_connection(wire.parse_address(cluster.address()), 5)
        link.sendall(wire.request(wire.GET_ROUTE_OF_TOPIC))
        wire.read_answer(link)
        cluster.pause()
        link.sendall(wire.request(wire.SEND_MESSAGE, wire.send_fields("orders", 0, ""), b"b"))
        cluster.kill()
        cluster.start("dev")

        assert end_of(cluster) == 1
        link.close()


def test_a_killed_broker_recovers_what_it_had_acknowledged() -> None:
    with Cluster() as cluster:
        for _ in range(3):
            assert send(cluster) == 0
        address = cluster.address()
        cluster.kill("dev")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(wire.parse_address(address), 5)
        cluster.start("dev")

        assert cluster.ask(lambda broker: broker.store.was_crashed)
        assert cluster.address() == address
        assert end_of(cluster) == 3


def test_a_stopped_broker_starts_from_a_clean_store() -> None:
    with Cluster() as cluster:
        assert send(cluster) == 0
        cluster.stop("dev")
        cluster.start("dev")

        assert not cluster.ask(lambda broker: broker.store.was_crashed)
        assert end_of(cluster) == 1


def test_a_name_server_that_starts_again_knows_the_topics_at_once() -> None:
    with Cluster() as cluster:
        cluster.create_topic("orders")
        port = cluster.port
        cluster.kill(NAME_SERVER)
        cluster.start(NAME_SERVER)

        assert cluster.port == port
        asked = wire.ask(cluster.name_server, wire.GET_ROUTE_OF_TOPIC, {"topic": "orders"})
        assert asked.code == 0


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        (("kill", "kill"), "dev does not run, it cannot be killed: start it before"),
        (("stop", "pause"), "dev does not run, it cannot be paused: start it before"),
        (("pause", "pause"), "dev is paused already"),
        (("resume",), "dev is not paused"),
        (("start",), "dev runs already"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(steps: tuple[str, ...], error: str) -> None:
    with Cluster() as cluster:
        for step in steps[:-1]:
            getattr(cluster, step)("dev")
        with pytest.raises(ClusterStateError) as refused:
            getattr(cluster, steps[-1])("dev")

    assert str(refused.value) == error


def test_a_pause_ends_with_its_block_whatever_happened_in_it() -> None:
    with Cluster() as cluster:
        with cluster.pause():
            cluster.kill()
        cluster.start("dev")
        with cluster.pause():
            cluster.resume()

        assert send(cluster) == 0
