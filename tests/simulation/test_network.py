"""What travels between hosts keeps to TCP, and breaks in the ways a test asks for."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.network import LinkQuality
from tests.simulation.recorder import PORT, A, B, Recorder, connect
from tests.simulation.simulation import Simulation

SEEDS = range(25)
PLAIN = LinkQuality(spike_chance=0.0, split_chance=0.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_arrive_complete_and_in_order_under_splitting_and_pauses(seed: int) -> None:
    with Simulation(seed) as sim:
        sim.network.quality = LinkQuality(split_chance=0.9, spike_chance=0.2, window=5_000)
        client, server = connect(sim)
        sent = bytearray()
        for _ in range(60):
            data = sim.random.randbytes(sim.random.randrange(1, 3_000))
            client.transport.write(data)
            sent += data
            if sim.random.random() < 0.2:
                server.transport.pause_reading()
            if sim.random.random() < 0.4:
                server.transport.resume_reading()
            sim.run_for(sim.random.uniform(0, 0.01))
        server.transport.resume_reading()
        client.transport.close()
        sim.run_until(lambda: bool(server.lost), within_s=60)
        assert server.received == sent
        assert (client.lost, server.lost, server.ended) == ([None], [None], True)


def test_one_write_may_arrive_in_pieces_and_several_as_one() -> None:
    with Simulation(3) as sim:
        sim.network.quality = LinkQuality(split_chance=1.0)
        client, server = connect(sim)
        for number in range(100):
            client.transport.write(bytes(2))
            sim.run_for(1)
            assert len(server.received) == 2 * number + 2
        assert server.chunks > 100
        server.chunks = 0
        for _ in range(100):
            client.transport.write(bytes(2))
        sim.run_for(1)
        assert len(server.received) == 400
        assert server.chunks < 100


def test_a_receiver_that_does_not_read_pauses_the_sender() -> None:
    with Simulation(1) as sim:
        client, server = connect(sim)
        server.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=1_000)
        client.transport.write(bytes(sim.network.quality.window + 1_000))
        assert (client.paused, client.transport.get_write_buffer_size()) == ([], 1_000)
        client.transport.writelines([b"one", b"more"])
        sim.run_for(10)
        assert (client.paused, server.received) == ([True], b"")
        server.transport.resume_reading()
        sim.run_for(10)
        assert client.paused == [True, False]
        assert len(server.received) == sim.network.quality.window + 1_007


def test_a_buffered_protocol_gets_its_bytes() -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(10)
            self.received = b""

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.received += self.buffer[:nbytes]

    protocol = Buffered()
    with Simulation(1) as sim:
        sim.host(B).call(lambda: sim.loop.create_server(lambda: protocol, B, PORT))

        async def send() -> None:
            _, writer = await asyncio.open_connection(B, PORT)
            writer.write(bytes(range(200)))
            writer.close()
            await writer.wait_closed()

        sim.host(A).call(send)
        sim.run_for(1)
    assert protocol.received == bytes(range(200))


def test_half_a_connection_can_end_before_the_other() -> None:
    with Simulation(1) as sim:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"%d" % len(await reader.read()))
            writer.close()

        async def ask() -> bytes:
            reader, writer = await asyncio.open_connection(B, PORT)
            writer.write(bytes(1_000_000))
            writer.write_eof()
            size = await reader.read()
            writer.close()
            return size

        sim.host(B).call(lambda: asyncio.start_server(answer, None, PORT))
        assert sim.host(A).call(ask) == b"1000000"


def test_addresses_are_those_of_the_hosts() -> None:
    with Simulation(1) as sim:
        client, server = connect(sim)
        assert client.transport.get_extra_info("peername") == (B, PORT)
        assert server.transport.get_extra_info("sockname") == (B, PORT)
        assert server.transport.get_extra_info("peername") == client.transport.get_extra_info(
            "sockname"
        )
        assert client.transport.get_extra_info("sockname")[0] == A
        assert client.transport.get_extra_info("socket").getpeername() == (B, PORT)


def test_port_0_is_a_free_one_and_a_port_has_one_server() -> None:
    async def listen_twice() -> int:
        servers = [await sim.loop.create_server(asyncio.Protocol, "127.0.0.1", 0) for _ in range(2)]
        ports = {server.sockets[0].getsockname()[1] for server in servers}
        with pytest.raises(OSError, match="in use"):
            await sim.loop.create_server(asyncio.Protocol, None, min(ports))
        servers[0].close()
        await servers[0].wait_closed()
        await sim.loop.create_server(asyncio.Protocol, None, min(ports))
        with pytest.raises(OSError, match="not of this host"):
            await sim.loop.create_server(asyncio.Protocol, B, 0)
        return len(ports)

    with Simulation(1) as sim:
        assert sim.host(A).call(listen_twice) == 2


def test_nobody_listening_refuses_and_loopback_is_for_the_host_alone() -> None:
    with Simulation(1) as sim:
        sim.host(B).call(lambda: sim.loop.create_server(lambda: Recorder(sim), "127.0.0.1", PORT))
        with pytest.raises(ConnectionRefusedError):
            sim.host(A).call(lambda: sim.loop.create_connection(lambda: Recorder(sim), B, PORT))
        transport, _ = sim.host(B).call(
            lambda: sim.loop.create_connection(lambda: Recorder(sim), "localhost", PORT)
        )
        assert transport.get_extra_info("peername") == ("127.0.0.1", PORT)


def test_a_host_without_power_does_not_answer_a_connect() -> None:
    with Simulation(1) as sim:
        with pytest.raises(TimeoutError):
            sim.host(A).call(
                lambda: sim.loop.create_connection(lambda: Recorder(sim), B, PORT), within_s=200
            )
        assert 127 < sim.now_s < 129


def test_a_connect_that_is_given_up_leaves_nothing_at_the_server() -> None:
    with Simulation(1) as sim:
        _, server = connect(sim)
        sim.network.quality = LinkQuality(latency_s=(1.0, 1.0), spike_chance=0.0)

        async def give_up() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5):
                    await sim.loop.create_connection(lambda: Recorder(sim), B, PORT)

        sim.host(A).call(give_up)
        sim.run_for(5)
        assert len(sim.network._connections) == 1
        assert not server.lost


def test_an_abort_resets_the_other_side() -> None:
    with Simulation(1) as sim:
        client, server = connect(sim)
        client.transport.abort()
        assert client.transport.is_closing()
        sim.run_for(1)
        assert client.lost == [None]
        assert isinstance(server.lost[0], ConnectionResetError)


def test_writing_to_an_end_that_is_closed_is_answered_with_a_reset() -> None:
    with Simulation(1) as sim:
        sim.network.quality = PLAIN
        client, server = connect(sim)
        server.eof_received = lambda: True  # type: ignore[method-assign]
        client.transport.close()
        sim.run_for(1)
        assert server.lost == []
        server.transport.write(b"hello?")
        sim.run_for(1)
        assert isinstance(server.lost[0], ConnectionResetError)


def test_a_cut_resets_both_sides_and_new_connections_can_be_made() -> None:
    with Simulation(1) as sim:
        client, server = connect(sim)
        sim.network.cut(A, B)
        sim.run_for(1)
        assert all(isinstance(end.lost[0], ConnectionResetError) for end in (client, server))
        sim.host(A).call(lambda: sim.loop.create_connection(lambda: Recorder(sim), B, PORT))


def test_half_open_bytes_vanish_and_the_sender_gives_up_late() -> None:
    with Simulation(1) as sim:
        client, server = connect(sim)
        sim.network.half_open(A, B)
        client.transport.write(b"lost")
        sim.run_for(600)
        assert (client.lost, server.lost, server.received) == ([], [], b"")
        sim.run_for(600)
        assert isinstance(client.lost[0], TimeoutError)
        assert server.lost == []
        sim.host(A).call(lambda: sim.loop.create_connection(lambda: Recorder(sim), B, PORT))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_partition_holds_bytes_up_and_loses_none(seed: int) -> None:
    with Simulation(seed) as sim:
        client, server = connect(sim)
        client.transport.write(b"before ")
        sim.network.partition(A, B)
        client.transport.write(b"during ")
        server.transport.write(b"answer")
        sim.run_for(100)
        assert server.received in (b"", b"before ")
        assert client.received == b""
        sim.network.heal(A)
        client.transport.write(b"after")
        sim.run_for(200)
        assert server.received == b"before during after"
        assert (client.received, client.lost, server.lost) == (b"answer", [], [])


@pytest.mark.parametrize("seed", range(20))
def test_nothing_comes_behind_a_reset_that_was_lost_in_a_partition(seed: int) -> None:
    with Simulation(seed) as sim:
        client, server = connect(sim)
        sim.network.partition(A, B)
        client.transport.write(b"before")
        sim.network.cut(A, B)
        client.transport.write(b"behind")
        sim.run_for(10)
        sim.network.heal(A)
        sim.run_for(200)
        assert b"before".startswith(server.received)


def test_a_one_way_partition_lets_the_other_way_through() -> None:
    with Simulation(1) as sim:
        client, server = connect(sim)
        sim.network.partition(A, B, one_way=True)
        client.transport.write(b"held up")
        server.transport.write(b"gets through")
        sim.run_for(10)
        assert (server.received, client.received) == (b"", b"gets through")


def test_an_isolated_host_is_reached_by_nobody_until_it_is_healed() -> None:
    with Simulation(1) as sim:
        connect(sim)
        sim.network.isolate(B)

        async def dial() -> float:
            await sim.loop.create_connection(lambda: Recorder(sim), B, PORT)
            return sim.now_s

        dialling = sim.host(A).start(dial)
        sim.run_for(20)
        assert not dialling.done()
        sim.network.heal()
        sim.run_until(dialling.done, within_s=40)
