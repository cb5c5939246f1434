"""A whole broker lets old files of its store go, and takes no message while its drive is full.

See docs/storage/retention.md.
"""

from __future__ import annotations

import errno
import itertools
import logging
from typing import Final

import pytest

from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.filled import COUNT, LOG, LOG_FILE, QUEUE, FilledBroker
from tests.simulation.simulation import Simulation

START_HOUR: Final = 22
"""Of the day, when a simulation's clock begins, at 13 minutes and 20 seconds past it."""


@pytest.fixture
def served(sim: Simulation) -> FilledBroker:
    return FilledBroker(sim)


def test_a_drive_that_is_too_full_takes_no_message_until_there_is_room_again(
    served: FilledBroker,
) -> None:
    served.host.drive.used_ratio = 0.91
    served.sim.run_for(11)
    refused = served.send(COUNT)
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "more than 90% of the store's drive is used (CL: 0.91 CQ: 0.91" in str(refused.remark)
    assert served.range()[1] == COUNT, "what is there can be read"
    served.host.drive.used_ratio = 0.9
    served.sim.run_for(11)
    assert served.send(COUNT).code == ResponseCode.SUCCESS


def test_nothing_goes_before_its_time(served: FilledBroker) -> None:
    served.sim.run_for(300)
    assert served.names(LOG) == served.files


def test_above_the_forced_share_the_oldest_files_go_whatever_their_age(
    served: FilledBroker,
) -> None:
    served.host.drive.used_ratio = 0.86
    served.sim.run_for(90)
    assert served.names(LOG) == served.files[-1:]
    first, end = served.range()
    assert (served.first_body(), end) == (b"%d" % first, COUNT)
    assert served.names(QUEUE)[0] == f"{first // 10 * 200:020}"


def test_a_queue_that_could_not_be_read_when_files_went_is_trimmed_once_it_can(
    served: FilledBroker,
) -> None:
    queue_files = {path for path in served.host.drive.names.files if path.parent == QUEUE}
    served.host.drive.unreadable |= queue_files
    served.host.drive.used_ratio = 0.86
    served.sim.run_for(90)
    assert served.names(LOG) == served.files[-1:]
    assert served.range()[0] == 0
    served.host.drive.used_ratio = 0.5
    served.host.drive.unreadable -= queue_files
    served.sim.run_for(30)
    assert served.first_body() == b"%d" % served.range()[0]


def test_only_what_goes_is_told_of(sim: Simulation, caplog: pytest.LogCaptureFixture) -> None:
    """Files behind the last checkpoint have to wait for the next one, and are looked at every ten
    seconds.
    """
    caplog.set_level(logging.INFO)
    served = FilledBroker(sim, flushConsumeQueueThoroughInterval=600_000)
    served.host.drive.used_ratio = 0.86
    sim.run_for(300)
    assert served.names(LOG) == served.files
    prefix = "expired commit log files will be deleted: files="
    assert not [line for line in caplog.messages if line.startswith(prefix)]
    sim.run_for(600)
    deleted = sum(
        int(line.removeprefix(prefix).split()[0])
        for line in caplog.messages
        if line.startswith(prefix)
    )
    assert deleted == len(served.files) - len(served.names(LOG)) > 0


def test_what_has_expired_goes_at_its_hour(sim: Simulation) -> None:
    served = FilledBroker(
        sim,
        fileReservedTime=0,
        deleteWhen=f"{START_HOUR + 1:02}",
        flushConsumeQueueThoroughInterval=60_000,
    )
    sim.run_for(45 * 60)
    assert served.names(LOG) == served.files
    sim.run_for(3 * 60)
    assert served.names(LOG) == served.files[-1:]


HOUR_MS: Final = 3_600_000
CHECKPOINT_S: Final = 60


def lives_for(served: FilledBroker, hours: float) -> None:
    """With a pass that deletes what has expired every five minutes."""
    for _ in range(round(hours * 12)):
        served.client.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
        served.sim.run_for(300)


@pytest.fixture
def patient(sim: Simulation) -> FilledBroker:
    """Keeps files for an hour. It makes no checkpoint each second, which would take most of the
    time of such a test.
    """
    served = FilledBroker(
        sim, fileReservedTime=1, flushConsumeQueueThoroughInterval=CHECKPOINT_S * 1000
    )
    sim.run_for(CHECKPOINT_S)
    return served


@pytest.mark.parametrize("step_hours", [-26, 10_000])
def test_a_clock_that_is_set_makes_no_file_go_sooner_or_later(
    patient: FilledBroker, step_hours: int
) -> None:
    patient.host.clock_ahead_ms += step_hours * HOUR_MS
    lives_for(patient, 0.85)
    assert patient.names(LOG) == patient.files
    lives_for(patient, 0.35)
    assert patient.names(LOG) == patient.files[-1:]


def test_a_clock_that_was_ahead_for_a_while_makes_no_file_go(patient: FilledBroker) -> None:
    patient.host.clock_ahead_ms += 26 * HOUR_MS
    lives_for(patient, 0.5)
    for number in range(COUNT):
        patient.send(number)
    patient.sim.run_for(CHECKPOINT_S + 2)
    files = patient.names(LOG)
    patient.host.clock_ahead_ms -= 26 * HOUR_MS
    lives_for(patient, 0.35)
    assert patient.names(LOG) == files
    lives_for(patient, 0.35)
    assert patient.names(LOG) == files[len(patient.files) - 1 :], "those from before are gone"
    lives_for(patient, 0.5)
    assert patient.names(LOG) == files[-1:], "and those from while it was ahead"


@pytest.mark.parametrize("step_hours", [0, 26])
def test_at_a_start_half_the_time_that_files_are_kept_has_passed_at_most(
    patient: FilledBroker, step_hours: int
) -> None:
    patient.node.stop()
    patient.host.clock_ahead_ms += step_hours * HOUR_MS
    patient.node.start()
    patient.sim.run_until(lambda: patient.node.broker is not None, 10)
    lives_for(patient, 0.4)
    assert patient.names(LOG) == patient.files
    lives_for(patient, 0.75)
    assert patient.names(LOG) == patient.files[-1:]


def test_what_cannot_be_deleted_now_goes_later_and_never_before_what_is_older(
    served: FilledBroker,
) -> None:
    looked_at = served.host.drive.names

    def has_no_gap() -> None:
        nonlocal looked_at
        if looked_at is served.host.drive.names:
            return
        looked_at = served.host.drive.names
        for folder, size in (LOG, LOG_FILE), (QUEUE, 200):
            names = [int(name) for name in served.names(folder)]
            assert all(second - first == size for first, second in itertools.pairwise(names)), (
                folder,
                names,
            )

    served.sim.check_always(has_no_gap)
    served.host.drive.used_ratio = 0.86
    served.host.drive.failure = errno.EROFS
    served.sim.run_for(90)
    assert served.names(LOG) == served.files
    served.host.drive.failure = None
    served.sim.run_for(60)
    assert served.names(LOG) == served.files[-1:]
    assert served.names(QUEUE)[0] == f"{served.range()[0] // 10 * 200:020}"


def test_a_look_that_fails_unforeseen_is_followed_by_the_next(served: FilledBroker) -> None:
    drive = served.host.drive
    drive.used_ratio = None  # type: ignore[assignment]
    served.sim.run_for(90)
    drive.used_ratio = 0.91
    served.sim.run_for(11)
    assert served.send(COUNT).code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_a_drive_that_fails_each_look_is_told_of_once_and_so_is_its_recovery(
    served: FilledBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    drive = served.host.drive
    drive.refuse("read", errno.EIO, 10_000)
    served.sim.run_for(300)
    told = [line for line in caplog.messages if line.startswith("maintenance task failed")]
    assert sorted(line.partition("error=")[0] for line in told) == [
        "maintenance task failed, will be retried: task='disk usage check' ",
        "maintenance task failed, will be retried: task='search for expired files' ",
    ]
    drive.refuse("read", errno.EIO, 0)
    served.sim.run_for(30)
    assert len([line for line in caplog.messages if line.startswith("maintenance task works")]) == 2


def test_pauses_between_deletions_do_not_blind_the_look_at_the_drive(sim: Simulation) -> None:
    served = FilledBroker(sim, deleteCommitLogFilesInterval=600_000)
    served.host.drive.used_ratio = 0.86
    sim.run_for(90)
    assert len(served.names(LOG)) == len(served.files) - 1
    served.host.drive.used_ratio = 0.95
    sim.run_for(11)
    assert served.send(COUNT).code == ResponseCode.SERVICE_NOT_AVAILABLE
