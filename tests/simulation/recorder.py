"""A connection between two simulated hosts whose ends only remember what happens to them."""

from __future__ import annotations

import asyncio

from tests.simulation.simulation import Simulation

A, B = "10.0.0.1", "10.0.0.2"
PORT = 7000


class Recorder(asyncio.Protocol):
    """Remembers what a connection brought and how it ended."""

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.transport: asyncio.Transport
        self.received = b""
        self.chunks = 0
        self.ended = False
        self.lost: list[Exception | None] = []
        self.lost_at = 0.0
        self.paused: list[bool] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert not self.lost
        self.received += data
        self.chunks += 1

    def eof_received(self) -> bool:
        self.ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)
        self.lost_at = self.world.now_s

    def pause_writing(self) -> None:
        self.paused.append(True)

    def resume_writing(self) -> None:
        self.paused.append(False)


def connect(sim: Simulation) -> tuple[Recorder, Recorder]:
    """A connection from A to B: the protocols at both ends."""
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder(sim))
        return accepted[-1]

    async def dial() -> Recorder:
        _, protocol = await sim.loop.create_connection(lambda: Recorder(sim), B, PORT)
        return protocol

    sim.host(B).call(lambda: sim.loop.create_server(accept, "0.0.0.0", PORT))
    client = sim.host(A).call(dial)
    sim.run_until(lambda: len(accepted) == 1 and hasattr(accepted[0], "transport"), within_s=1)
    return client, accepted[0]
