"""Replication between our brokers and Apache's: the logs are the same bytes, the queues the same
entries.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.apache import ApacheNameServer, JavaClients, require_java
from tests.interop.couples import (
    LOG_FILE,
    SEND_OK,
    SLAVE_NOT_AVAILABLE,
    Couple,
    Maker,
    begin,
    log_files,
    remove_first_log_file,
)
from tests.interop.processes import SECONDS
from tests.interop.stored import log_queues

pytestmark = pytest.mark.interop

OURS, APACHE, APACHE_5X = Maker
SYNC, ASYNC = "SYNC_MASTER", "ASYNC_MASTER"
COUPLES = [
    *(
        (*makers, role)
        for makers in ((OURS, OURS), (OURS, APACHE), (APACHE, OURS))
        for role in (SYNC, ASYNC)
    ),
    pytest.param(APACHE, APACHE, ASYNC, marks=pytest.mark.long),
]
"""The last one says whether what is asked of the others is true of Apache's."""
NEWER = ((OURS, APACHE_5X), (APACHE_5X, OURS))
CLIENT = "4.9.7-json"


@pytest.fixture(scope="module")
def name_server() -> Iterator[ApacheNameServer]:
    require_java()
    with ApacheNameServer() as server:
        yield server


@pytest.mark.parametrize(
    ("master", "slave", "role"), COUPLES, ids=lambda each: getattr(each, "value", each)
)
def test_a_slave_joins_late_falls_back_catches_up_and_stands_in(
    name_server: ApacheNameServer, clients: JavaClients, master: Maker, slave: Maker, role: str
) -> None:
    with Couple(name_server.address, master, slave, role, known=role == ASYNC) as couple:
        an_empty_slave_begins_at_the_last_file(
            couple, alone=SLAVE_NOT_AVAILABLE if role == SYNC else SEND_OK
        )
        it_follows_over_new_files(couple)
        it_catches_up_after_a_crash(couple)
        it_stands_in(couple, clients, 250)


@pytest.mark.parametrize(("master", "slave"), NEWER, ids=lambda maker: maker.value)
def test_a_5x_broker_at_the_other_end(
    name_server: ApacheNameServer, master: Maker, slave: Maker
) -> None:
    with Couple(name_server.address, master, slave, SYNC) as couple:
        couple.master.start()
        couple.slave.start()
        couple.await_follower()
        it_follows_over_new_files(couple)
        it_catches_up_after_a_crash(couple)


def an_empty_slave_begins_at_the_last_file(couple: Couple, *, alone: int) -> None:
    """Of a master whose first messages are no more."""
    couple.master.start()
    assert couple.send("Gone", 40) == {alone}
    assert couple.send("Early", 160) == {alone}
    couple.master.kill()
    remove_first_log_file(couple.master)
    couple.master.start()
    couple.slave.start()
    couple.await_same()
    assert begin(couple.master) == LOG_FILE
    assert begin(couple.slave) == max(log_files(couple.master)) >= 3 * LOG_FILE
    assert all(min(offsets) > 0 for offsets in log_queues(couple.slave.store_dir).values())


def it_follows_over_new_files(couple: Couple) -> None:
    assert couple.send("Copied", 190) == {SEND_OK}
    couple.await_same()
    assert len(log_files(couple.slave)) >= 4


def it_catches_up_after_a_crash(couple: Couple) -> None:
    couple.slave.kill()
    assert couple.send("Copied", 60, waits=False) == {SEND_OK}
    couple.slave.start()
    couple.await_same()
    assert len(log_files(couple.slave)) >= 5


def it_stands_in(couple: Couple, clients: JavaClients, count: int) -> None:
    """With the master dead, a consumer gets every message from the slave."""
    couple.await_topic_at_slave("Copied")
    couple.master.kill()
    words = ("consume", couple.namesrv, "Copied", f"G-{couple.name}", count, SECONDS)
    got = clients[CLIENT].run(*words).check()
    assert len({(line["queueId"], line["queueOffset"]) for line in got}) == count
