"""A master's server with slaves, strangers and broken peers: nobody else is disturbed."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import uvloop

from roquet.replication import master
from roquet.replication.admission import Admission, networks
from roquet.replication.client import HaClient
from roquet.replication.frames import report
from roquet.replication.server import DISCONNECTED_MAX
from tests.replication.memory_log import MemoryLog
from tests.replication.ports import FILE_SIZE, LOG, RESET, Master, ended
from tests.transport.crowd import until


def test_a_hundred_resets_are_no_tracebacks_and_no_lines(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with Master() as its:
            for _ in range(100):
                peer = its.connect()
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                peer.close()
            await its.copy_once()

    run(scene())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 8, report(1)[:5], report(1 << 40)]
)
def test_what_is_no_slave_is_told_of_once_however_often_it_comes(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    async def scene() -> None:
        async with Master() as its:
            for _ in range(40):
                peer = its.connect()
                peer.sendall(said)
                peer.close()
            await its.copy_once()
            await until(lambda: its.server.slave_count == 0)

    run(scene())
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 2


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01" + bytes(8), b"\xff" * 8, b"\n"],
)
def test_what_is_no_slave_is_not_the_last_slave(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    async def scene() -> None:
        async with Master() as its:
            await its.copy_once()
            await until(lambda: its.server.slave_count == 0)
            before = its.server.why_no_slave
            peer = its.connect()
            peer.sendall(said)
            peer.close()
            await until(
                lambda: any(
                    "ended, no slave: peer=127.0.0.1:" in each.message for each in caplog.records
                )
            )
            assert its.server.why_no_slave == before
            assert len(its.server.slaves()) == 1

    run(scene())


def test_reports_beyond_what_was_sent_or_backwards_acknowledge_nothing(
    run: Callable[[Awaitable[None]], None],
) -> None:
    async def scene() -> None:
        async with Master() as its:
            honest = its.connect()
            honest.sendall(report(1000))
            await until(lambda: its.server.replicated_to == 1000)
            honest.sendall(report(10))
            await until(lambda: its.server.slaves()[0].silent_ms < 1000)
            assert its.server.replicated_to == 1000
            honest.sendall(report(len(LOG) + 1))
            await until(lambda: its.server.slave_count == 0)
            assert its.server.replicated_to == 0
            honest.close()

    run(scene())


def test_slaves_that_do_not_read_are_dropped_and_their_memory_is_back(
    run: Callable[[Awaitable[None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.replication.server.TICK_S", 0.05)

    async def scene() -> None:
        rules = master.Rules(chunk_size=1 << 20, silence_ms_max=200)
        async with Master(rules) as its:
            its.log.append(bytes(8 << 20))
            peers = [its.connect() for _ in range(20)]
            for peer in peers:
                peer.sendall(report(1))
            await until(lambda: its.server.slave_count > 0)
            await until(lambda: not its.connections)
            assert {each.reason.split(" for ")[0] for each in its.server.slaves()} == {
                "the slave has been silent"
            }
            for peer in peers:
                peer.close()

    run(scene())


def test_the_number_of_slaves_is_bounded_and_the_mute_make_room(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with Master(admission=Admission(connections_max=3)) as its:
            mute = [its.connect() for _ in range(30)]
            await its.copy_once()
            assert its.connections <= 3
            slaves = [its.connect() for _ in range(3)]
            for each in slaves:
                each.sendall(report(1))
            await until(lambda: its.server.slave_count == 3)
            late = [its.connect() for _ in range(20)]
            for each in late:
                each.settimeout(5)
                with suppress(ConnectionResetError):
                    assert await asyncio.to_thread(each.recv, 1) == b""
            assert its.server.slave_count == 3
            for each in [*mute, *slaves, *late]:
                each.close()

    run(scene())
    assert len([line for line in caplog.messages if "haConnectionsMax=3" in line]) == 1


LOOPBACK_NET = pytest.mark.skipif(
    sys.platform != "linux", reason="127.0.0.2 is an address of its own on Linux only"
)


@LOOPBACK_NET
def test_strangers_of_one_address_neither_keep_a_slave_out_nor_push_it_out(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    """They speak the protocol, and acknowledge all there is: nothing but their address tells them
    from slaves.
    """

    async def scene() -> None:
        async with Master(admission=Admission(connections_max=4)) as its:

            async def crowd_of_strangers() -> list[socket.socket]:
                strangers = [its.connect("127.0.0.2") for _ in range(12)]
                for each in strangers:
                    with suppress(OSError):
                        each.sendall(report(its.log.end))
                await until(lambda: its.server.slave_count == 4)
                return strangers

            sockets = await crowd_of_strangers()
            copy = MemoryLog(FILE_SIZE, b"")
            client = HaClient(copy, lambda: None)
            client.set_master(f"127.0.0.1:{its.port}")
            await until(lambda: copy.end == its.log.end)
            sockets += await crowd_of_strangers()
            its.log.append(bytes(1000))
            its.server.notify_growth()
            await until(lambda: copy.end == its.log.end)
            assert client.status().reason == ""
            hosts = [
                each.address.partition(":")[0] for each in its.server.slaves() if not each.reason
            ]
            assert sorted(hosts) == ["127.0.0.1"] + ["127.0.0.2"] * 3
            await client.close()
            for each in sockets:
                each.close()

    run(scene())
    assert len([line for line in caplog.messages if "haConnectionsMax=4" in line]) <= 2, (
        "one way, and the other"
    )


def test_of_one_address_those_that_repeat_a_report_while_there_is_more_make_room(
    run: Callable[[Awaitable[None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.replication.server.TICK_S", 0.02)

    async def scene() -> None:
        async with Master(master.Rules(silence_ms_max=100), Admission(connections_max=3)) as its:
            strangers = [its.connect() for _ in range(3)]

            async def keep_on() -> None:
                while True:
                    for each in strangers:
                        with suppress(OSError):
                            each.sendall(report(1))
                    await asyncio.sleep(0.01)

            talking = asyncio.create_task(keep_on())
            await until(lambda: its.server.slave_count == 3)
            await its.copy_once()
            talking.cancel()
            for each in strangers:
                each.close()

    run(scene())


def test_only_slaves_from_allowed_addresses_acknowledge(
    run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A fake slave that stores nothing is believed by a master that lets it in: there is no
    authentication.
    """
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        async with Master(admission=Admission(networks("10.0.0.0/8, 192.168.1.7"))) as its:
            for _ in range(10):
                fake = its.connect()
                with suppress(OSError):
                    fake.sendall(report(len(LOG)))
                    assert await asyncio.to_thread(fake.recv, 1) == b""
                fake.close()
            assert its.acks == its.server.slave_count == 0
        async with Master(admission=Admission(networks("127.0.0.0/8"))) as its:
            await its.copy_once()

    run(scene())
    assert len([line for line in caplog.messages if "haAllowedAddresses" in line]) == 1
    assert [
        line
        for line in caplog.messages
        if line.startswith("slave joined, ") and "peer=127.0.0.1:" in line
    ]


def test_nothing_stays_of_connections_that_come_as_the_port_closes() -> None:
    """Accepted in one turn of the loop, they are told to the server in a later one.

    asyncio's own loop forgets some of them.
    """

    async def scene() -> None:
        for turns in range(6):
            its = Master()
            await its.__aenter__()
            comers = [its.connect() for _ in range(5)]
            for _ in range(turns):
                await asyncio.sleep(0)
            await its.server.close()
            left = its.connections
            ends = [await ended(peer) for peer in comers]
            assert (left, ends) == (0, [True] * 5)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene())


# what it says of its slaves


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server looks at its slaves often."""
    monkeypatch.setattr("roquet.replication.server.TICK_S", 0.01)


async def test_a_master_says_why_it_has_no_slave() -> None:
    async with Master() as its:
        server = its.server
        assert server.why_no_slave == "no slave is connected"
        peer = its.connect()
        await until(lambda: its.connections == 1)
        assert server.why_no_slave == "no connected slave has sent a slave report yet, connected: 1"
        address = server.slaves()[0].address
        peer.sendall(report(100))
        await until(lambda: server.slave_count == 1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        peer.close()
        await until(lambda: server.slave_count == 0)

        text = f"no slave is connected, the last one, {address}, disconnected: the connection ended"
        assert server.why_no_slave.startswith(text)


async def test_a_slave_s_state_is_what_it_was_sent_and_has_acknowledged(quick: None) -> None:
    async with Master() as its:
        peer = its.connect()
        peer.sendall(report(100))
        await until(lambda: its.server.slave_count == 1)

        await until(lambda: its.server.slaves()[0].lag_ms > 0)
        (follow,) = its.server.slaves()

        assert follow.phase is master.Phase.STREAMING
        assert (follow.sent, follow.acked) == (len(LOG), 100)
        assert (follow.lag, follow.reason) == (len(LOG) - 100, "")
        assert (its.server.replicated_to, its.acks) == (100, 1)
        peer.sendall(report(len(LOG)))
        await until(lambda: its.server.replicated_to == len(LOG))
        assert (its.server.slaves()[0].lag, its.acks) == (0, 2)
        peer.close()


async def test_a_byte_that_the_log_does_not_have_has_no_age() -> None:
    async with Master() as its:
        await until(lambda: its.server.age_ms(len(LOG) - 1) > 0)

        assert its.server.age_ms(len(LOG)) == 0


async def test_an_empty_slave_says_nothing_of_records_before_its_copy() -> None:
    """They may be in no other copy: a SYNC_MASTER must not acknowledge them by its reports."""
    async with Master() as its:
        its.log.append(bytes(FILE_SIZE))
        full, empty = its.connect(), its.connect()
        full.sendall(report(1000))
        await until(lambda: its.server.slave_count == 1)
        empty.sendall(report(0))
        await until(lambda: its.server.slave_count == 2)
        empty.sendall(report(FILE_SIZE + 100))
        await until(lambda: its.server.replicated_to == FILE_SIZE + 100)
        ends = (1000, 1001, FILE_SIZE, FILE_SIZE + 1, FILE_SIZE + 100, FILE_SIZE + 101)
        has = [its.server.has_copy(end) for end in ends]
        assert has == [True, False, False, True, True, False]

        empty.close()
        await until(lambda: its.server.slave_count == 1)
        assert not its.server.has_copy(FILE_SIZE + 1)
        again = its.connect()
        again.sendall(report(FILE_SIZE + 100))
        await until(lambda: its.server.slave_count == 2)
        assert [its.server.has_copy(end) for end in ends] == has
        for peer in (full, again):
            peer.close()


async def test_the_furthest_slave_says_up_to_where_the_log_is_replicated() -> None:
    async with Master() as its:
        peers = [its.connect() for _ in range(2)]
        for peer, offset in zip(peers, (1000, 500), strict=True):
            peer.sendall(report(offset))
        await until(lambda: its.server.slave_count == 2)
        assert its.server.replicated_to == 1000

        peers[0].close()
        await until(lambda: its.server.slave_count == 1)

        assert its.server.replicated_to == 500
        peers[1].close()
        await until(lambda: its.server.slave_count == 0)
        assert its.server.replicated_to == 0


async def test_the_speed_is_measured_while_bytes_are_sent(quick: None) -> None:
    async with Master() as its:
        copy = MemoryLog(FILE_SIZE, b"")
        client = HaClient(copy, lambda: None)
        client.set_master(f"127.0.0.1:{its.port}")
        await until(lambda: its.server.replicated_to == its.log.end)

        def grow() -> bool:
            its.log.append(bytes(100))
            its.server.notify_growth()
            return its.server.slaves()[0].bytes_per_s > 0

        await until(grow)
        await until(lambda: its.server.slaves()[0].bytes_per_s == 0)
        await client.close()


async def test_a_slave_is_dropped_when_the_log_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Master() as its:
        its.log.is_unreadable = True
        peer = its.connect()
        peer.sendall(report(100))

        assert await ended(peer)

        (follow,) = its.server.slaves()
        assert follow.reason.startswith("the log cannot be read at offset 100: [Errno 5]")
        assert (its.server.slave_count, its.acks) == (0, 0)
    (line,) = caplog.messages
    assert line.startswith("slave disconnected: peer=127.0.0.1:")
    assert "reason=the log cannot be read at offset 100" in line


async def test_a_connection_that_ends_within_a_report_says_so() -> None:
    async with Master() as its:
        peer = its.connect()
        peer.sendall(report(100) + report(200)[:3])
        await until(lambda: its.server.slave_count == 1)
        peer.shutdown(socket.SHUT_WR)

        await until(lambda: its.server.slave_count == 0)

        (follow,) = its.server.slaves()
        assert follow.reason == "the connection ended after 3 of the 8 bytes of a report"
        peer.close()


@LOOPBACK_NET
async def test_of_sixteen_hosts_it_is_known_why_their_slaves_left() -> None:
    async with Master() as its:
        for number in range(1, DISCONNECTED_MAX + 3):
            peer = its.connect(f"127.0.0.{number}")
            peer.sendall(report(1))
            await until(lambda: its.server.slave_count == 1)
            peer.close()
            await until(lambda: its.server.slave_count == 0)

        hosts = [each.address.partition(":")[0] for each in its.server.slaves()]

        assert hosts == [f"127.0.0.{number}" for number in range(3, DISCONNECTED_MAX + 3)]
        assert f"the last one, 127.0.0.{DISCONNECTED_MAX + 2}:" in its.server.why_no_slave


async def test_why_a_master_closes_is_logged_for_each_slave(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Master() as its:
        peers = [its.connect() for _ in range(2)]
        for peer in peers:
            peer.sendall(report(7))
        await until(lambda: its.server.slave_count == 2)
        addresses = [each.address for each in its.server.slaves()]

        its.server.log_why_closing("the broker stops")

        assert caplog.messages == [
            f"connection of a slave will be closed: peer={address} acked=7 reason=the broker stops"
            for address in addresses
        ]
        for peer in peers:
            peer.close()


async def test_a_slave_that_comes_again_and_again_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with Master() as its:
        for _ in range(5):
            await its.copy_once()
            await until(lambda: its.server.slave_count == 0)

    joined = [line for line in caplog.messages if line.startswith("slave joined")]
    lost = [line for line in caplog.messages if line.startswith("slave disconnected")]
    assert (len(joined), len(lost)) == (1, 1)


async def test_a_server_without_connections_closes_at_once_and_takes_no_more() -> None:
    its = Master()
    await its.__aenter__()

    await its.server.close()

    with pytest.raises(ConnectionRefusedError):
        its.connect()


async def test_a_server_that_never_listened_can_be_closed() -> None:
    its = Master()

    await its.server.close()

    assert its.server.slaves() == []
