"""Threads sync, save and delete files of a broker while its loop writes, forgets and deletes
others.
"""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Final

import pytest

from roquet.protocol.records.record import decode
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.harness import ADDRESS, Client
from tests.broker.served import send, serving, started
from tests.simulation.disk import DriveSpeed
from tests.simulation.simulation import Simulation
from tests.simulation.swallowed import SwallowedErrors

KEPT: Final = "T"
DELETED: Final = "D"
TROUBLES: Final = (errno.EPERM, errno.EIO, errno.EROFS, errno.EBUSY)
ROUNDS: Final = 30
SETTINGS: Final = {
    "flushDiskType": "SYNC_FLUSH",
    "deleteConsumeQueueFilesInterval": 1,
    "deleteCommitLogFilesInterval": 1,
}


class Life:
    """One broker whose topics are filled and deleted, whose old files go, and that ends in every
    way.

    Invariant: `acknowledged` is what must be readable, by topic: body by queue offset. None: nobody
    knows, since a deletion was not answered with success.
    """

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.chance = sim.chance("life")
        self.host = sim.host(ADDRESS)
        self.host.drive.speed = DriveSpeed((0.01, 0.2))
        self.node = started(sim, ADDRESS, **SETTINGS)
        self.client = Client(sim, sim.host("10.0.0.9"))
        self.acknowledged: dict[str, dict[int, bytes] | None] = {KEPT: {}, DELETED: {}}
        self.sent = 0

    def send(self, topic: str) -> None:
        for _ in range(self.chance.randrange(1, 8)):
            self.sent += 1
            body = b"%d" % self.sent
            answer = send(self.client, body, topic, f"KEYS\x01{self.sent}")
            known = self.acknowledged[topic]
            if answer.code == ResponseCode.SUCCESS and known is not None:
                known[int(answer.fields["queueOffset"])] = body

    def send_kept(self) -> None:
        self.send(KEPT)

    def send_deleted(self) -> None:
        self.send(DELETED)

    def delete_topic(self) -> None:
        answer = self.client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic=DELETED)
        self.acknowledged[DELETED] = {} if answer.code == ResponseCode.SUCCESS else None

    def clean(self) -> None:
        """The oldest files go."""
        self.host.drive.used_ratio = 0.86
        self.sim.run_for(self.chance.uniform(0, 15))
        self.host.drive.used_ratio = 0.5

    def clean_queues(self) -> None:
        self.client.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    def refuse_deletions(self) -> None:
        self.host.drive.refuse(
            "delete", self.chance.choice(TROUBLES), self.chance.choice((1, 1, 3, 20))
        )

    def wait(self) -> None:
        self.sim.run_for(self.chance.uniform(0, 3))

    def end(self) -> None:
        self.client.close()
        way = self.chance.choice((self.host.crash, self.host.kill, self.stop))
        way()
        self.host.drive.refuse("delete", 0, 0)
        self.node.start()
        self.sim.run_until(lambda: self.node.broker is not None, 60)
        self.client = Client(self.sim, self.client.host)
        self.check()

    def stop(self) -> None:
        self.host.drive.refuse("delete", 0, 0)
        self.node.stop()

    def check(self) -> None:
        """What was acknowledged is there unless it was cleaned away; what was deleted is not."""
        store = serving(self.node).store
        for topic, known in self.acknowledged.items():
            queue = store.queues.known(topic, 0)
            if known is None:
                continue
            if queue is None or not known:
                assert not known, f"{topic} is gone"
                assert queue is None or not queue.max_offset, f"{topic} is back"
                continue
            for offset, body in known.items():
                entry = queue.entry(offset)
                if entry is None:
                    assert offset < queue.min_offset, f"{topic} {offset} is not in the queue"
                    continue
                record = store.log.record_at(entry[0])
                assert record is not None
                assert decode(record).body == body, f"{topic} {offset}"

    def go_on(self) -> None:
        actions = (
            *[self.send_kept] * 4,
            *[self.send_deleted] * 3,
            *[self.delete_topic] * 3,
            *[self.clean] * 2,
            self.clean_queues,
            self.refuse_deletions,
            self.wait,
            self.wait,
            self.end,
        )
        self.sim.run_for(61)  # until cleaning begins
        for _ in range(ROUNDS):
            action = self.chance.choice(actions)
            self.sim.note("action", action.__name__)
            action()
        self.end()


@pytest.mark.parametrize("seed", range(12))
def test_what_threads_and_the_loop_do_to_files_at_once_harms_none(seed: int) -> None:
    with Simulation(seed) as sim, SwallowedErrors() as swallowed:
        sim.check_always(swallowed.check)
        Life(sim).go_on()


def test_a_topic_that_is_deleted_while_a_checkpoint_is_made_does_not_come_back() -> None:
    """At any moment of the checkpoint, and with a crash at any moment after the deletion was
    answered.
    """
    for moment in range(40):
        with Simulation(moment) as sim:
            life = Life(sim)
            life.host.drive.speed = DriveSpeed((0.1, 0.1), spike_chance=0.0)
            life.send_kept()
            life.send_deleted()
            sim.run_for(1 + moment / 30)
            life.delete_topic()
            sim.run_for(life.chance.uniform(0, 1))
            life.host.crash()
            life.node.start()
            sim.run_until(lambda life=life: life.node.broker is not None, 60)  # type: ignore[misc]
            life.check()
            assert life.acknowledged[DELETED] == {}


def test_a_file_that_cannot_be_deleted_is_told_of_once_and_holds_up_no_other_folder(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with Simulation(1) as sim:
        life = Life(sim)
        for _ in range(60):
            life.send_kept()
        sim.run_for(61)
        drive = life.host.drive
        first = sorted(
            path for path in drive.names.files if path.parent == Path("/store/commitlog")
        )[0]
        queue = sorted(
            path for path in drive.names.files if path.parent == Path("/store/consumequeue/T/0")
        )[0]
        drive.undeletable[first] = 0
        drive.used_ratio = 0.86
        sim.run_for(600)
        assert drive.undeletable[first] in range(4, 8), "after 10, 20, 40, ... seconds"
        assert first in drive.names.files
        assert queue not in drive.names.files
        assert (
            len([record for record in caplog.records if "cannot be deleted" in record.message]) == 1
        )
        life.send_kept()
        drive.undeletable.clear()
        sim.run_for(600)
        assert first not in drive.names.files
        assert "can be deleted again" in caplog.text
        life.end()


def test_files_behind_one_that_cannot_be_deleted_wait_for_it() -> None:
    with Simulation(1) as sim:
        life = Life(sim)
        for _ in range(60):
            life.send_kept()
        sim.run_for(61)
        drive = life.host.drive
        files = sorted(
            path for path in drive.names.files if path.parent == Path("/store/commitlog")
        )
        drive.undeletable[files[2]] = 0
        drive.used_ratio = 0.86
        sim.run_for(100)
        assert (
            sorted(path for path in drive.names.files if path.parent == Path("/store/commitlog"))
            == files[2:]
        )
