"""Strangers and broken slaves at a master's port for slaves: the couple goes on, and the log says
what it saw.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event

import pytest

from tests.golden.proxy import RecordingProxy, Side
from tests.interop.apache import HOST, free_port, wait_until
from tests.interop.couples import (
    SEND_OK,
    SLAVE_NOT_AVAILABLE,
    Couple,
    Maker,
    begin,
    has_same_log,
    has_whole_queues,
    log_files,
    remove_first_log_file,
)
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer

pytestmark = pytest.mark.process

MIB = 1024 * 1024
PROPERTIES: dict[str, str | int] = {
    "mappedFileSizeCommitLog": MIB,
    "haSendHeartbeatInterval": 500,
    "haHousekeepingInterval": 4_000,
}
"""Who says nothing for four seconds is dropped; a slave speaks twice a second."""
IDLE = 100
ENDED = "the connection ended"
CUT = 1_200_001
TIMEOUT_S = 30


@pytest.fixture(scope="module")
def couple() -> Iterator[Couple]:
    """Both have a log of 20 MiB, more than sockets take on behalf of who does not read; the first
    file is no more.
    """
    with (
        RoquetNameServer() as names,
        Couple(
            names.address, Maker.OURS, Maker.OURS, "SYNC_MASTER", properties=PROPERTIES
        ) as running,
    ):
        running.master.start()
        running.send("Large", 200, size=100_000)
        running.master.kill()
        remove_first_log_file(running.master)
        running.master.start()
        running.slave.start()
        running.await_follower()
        yield running


@contextmanager
def sending(couple: Couple) -> Iterator[None]:
    """Meanwhile the master says of every message that its slave has it."""
    ended, codes = Event(), set[int]()

    def send() -> int:
        rounds = 0
        while not ended.is_set() or rounds < 2:
            codes.update(couple.send("Meanwhile", 10))
            rounds += 1
        return rounds

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        try:
            yield
        finally:
            ended.set()
        assert sent.result() >= 2
    assert codes == {SEND_OK}


def ha_port(couple: Couple) -> socket.socket:
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    link.settimeout(TIMEOUT_S)
    link.connect((HOST, couple.master.port + 1))
    return link


def says(data: bytes) -> Callable[[Couple], None]:
    """Until the master hangs up."""

    def stranger(couple: Couple) -> None:
        with ha_port(couple) as link:
            link.sendall(data)
            assert read_to_end(link) == b""

    return stranger


def read_to_end(link: socket.socket) -> bytes:
    data = b""
    try:
        while piece := link.recv(65536):
            data += piece
    except ConnectionError:
        pass
    return data


def leaves_within_a_report(couple: Couple) -> None:
    with ha_port(couple) as link:
        link.sendall(b"\0" * 5)


def leaves_within_a_transfer(couple: Couple) -> None:
    """What it has not read makes the end of its connection a hard one."""
    with ha_port(couple) as link:
        link.sendall(struct.pack(">q", begin(couple.master)))
        assert len(link.recv(1_000)) == 1_000


def acknowledges_what_was_not_sent(couple: Couple) -> None:
    """It does not read, so that most of the log is still to be sent."""
    with ha_port(couple) as link:
        link.sendall(struct.pack(">q", begin(couple.master)))
        assert link.recv(12)
        link.sendall(struct.pack(">q", max(log_files(couple.master))))
        wait_until(
            lambda: "was sent nothing beyond" in couple.master.log(), "the master's word on it"
        )


def lost_slaves(couple: Couple, reason: str) -> int:
    """How many slaves the master's log says were lost for this reason."""
    return len(re.findall(f"slave disconnected: .* reason={reason}", couple.master.log()))


STRANGERS = {
    "another protocol": (
        says(b"GET / HTTP/1.1\r\n\r\n"),
        "invalid slave report: offset=5135603447292250196",
    ),
    "no offset": (says(b"\xff" * 8), "invalid slave report: offset=-1"),
    "beyond the end": (
        says(struct.pack(">q", 1 << 40)),
        "the slave is ahead of the log: it reports ",
    ),
    "what is gone": (
        says(struct.pack(">q", 100)),
        f"the slave needs 100, the log starts at {MIB}: wipe its store",
    ),
    "half a report": (
        leaves_within_a_report,
        "the connection ended after 5 of the 8 bytes of a report",
    ),
    "half a transfer": (leaves_within_a_transfer, f"reason={ENDED}: "),
    "a lie": (acknowledges_what_was_not_sent, "but was sent nothing beyond"),
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_stranger_disturbs_nobody_and_is_told_of(couple: Couple, kind: str) -> None:
    stranger, told = STRANGERS[kind]
    with sending(couple):
        for _ in range(3):
            stranger(couple)
        wait_until(lambda: told in couple.master.log(), f"'{told}' in the master's log")


def test_idle_connections_and_a_slave_that_never_reads_disturb_nobody_and_are_told_of(
    couple: Couple,
) -> None:
    began = time.monotonic()
    with ExitStack() as open_links, sending(couple):
        idle = [open_links.enter_context(ha_port(couple)) for _ in range(IDLE)]
        deaf = open_links.enter_context(ha_port(couple))
        deaf.sendall(struct.pack(">q", begin(couple.master)))
        for link in idle:
            assert read_to_end(link) == b""
        told = "the slave has been silent for "
        wait_until(lambda: lost_slaves(couple, told) > 0, f"'{told}' in the master's log")
        received = read_to_end(deaf)
        assert 0 < len(received) < 10 * MIB, "it was dropped before it was sent all"
    minutes = (time.monotonic() - began) // 60
    assert lost_slaves(couple, told) <= 1 + minutes, "of one host one is logged each minute"


def test_a_slave_whose_transfers_are_cut_has_the_log_in_the_end(couple: Couple) -> None:
    """A second one; each of its connections ends within a chunk. Sends go on with the couple's own
    slave.
    """
    with RecordingProxy(
        f"{HOST}:{couple.master.port + 1}", free_port(), whole_frames=False, cut_after=CUT
    ) as door:
        properties = PROPERTIES | {"haMasterAddress": door.address}
        with RoquetBroker(
            couple.namesrv, name=couple.name, role="SLAVE", broker_id=2, properties=properties
        ) as second:
            wait_until(lambda: bool(door.connections), "the slave")
            assert couple.send("Cut", 15, size=100_000) == {SEND_OK}
            wait_until(lambda: has_same_log(couple.master, second), "equal logs")
            wait_until(lambda: has_whole_queues(second), "the slave's queues")
            assert len(door.connections) >= 2
            assert {len(each.stream(Side.SERVER)) for each in door.connections[:-1]} == {CUT}


def test_connections_that_say_nothing_are_no_slaves(couple: Couple) -> None:
    """A send is told at once that there is no slave, rather than wait for them."""
    with ExitStack() as open_links:
        for _ in range(IDLE):
            open_links.enter_context(ha_port(couple))
        told = lost_slaves(couple, ENDED)
        couple.slave.kill()
        wait_until(lambda: lost_slaves(couple, ENDED) > told, "the loss of the slave")
        assert couple.send("Alone", 10) == {SLAVE_NOT_AVAILABLE}
    couple.slave.start()
    couple.await_follower()
    couple.await_same()
