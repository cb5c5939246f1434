"""A broker whose log has several files, and a client of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.broker.harness import ADDRESS, Client
from tests.broker.served import SMALL, send, serving, started
from tests.simulation.simulation import Simulation

LOG_FILE: Final = SMALL["mapedFileSizeCommitLog"]
LOG: Final = Path("/store/commitlog")
QUEUE: Final = Path("/store/consumequeue/T/0")
COUNT: Final = 200


class FilledBroker:
    """A broker with 200 messages in several files of its log, on disk, and somebody who talks to
    it.
    """

    def __init__(self, sim: Simulation, **settings: object) -> None:
        self.sim = sim
        self.host = sim.host(ADDRESS)
        self.node = started(sim, ADDRESS, **settings)
        self.client = Client(sim, sim.host("10.0.0.9"))
        for number in range(COUNT):
            assert self.send(number).code == ResponseCode.SUCCESS
        sim.run_for(2)
        self.files = self.names(LOG)
        assert len(self.files) > 4

    def send(self, number: int) -> Command:
        return send(self.client, b"%d" % number, properties=f"KEYS\x01{number}")

    def names(self, folder: Path) -> list[str]:
        return sorted(path.name for path in self.host.drive.names.files if path.parent == folder)

    def range(self) -> tuple[int, int]:
        """First and next offset of the queue, as a client is told."""
        asked = RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET
        first, end = (
            int(self.client.call(code, topic="T", queueId=0).fields["offset"]) for code in asked
        )
        return first, end

    def first_body(self) -> bytes:
        store = serving(self.node).store
        record = store.log.record_at(store.log.start)
        assert record is not None
        size = int.from_bytes(record[84:88], "big")
        return record[88 : 88 + size]
