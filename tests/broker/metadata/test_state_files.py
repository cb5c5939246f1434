"""Tables and their files.

See docs/storage/files.md#state-files.
"""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from roquet.broker.metadata import state_files
from roquet.broker.metadata.state_files import StateFile
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.common.runtime import Runtime
from roquet.protocol.bodies.filter_table import FilterTable
from roquet.protocol.bodies.tables import DelayOffsetTable, GroupTable, OffsetTable, TopicTable
from roquet.storage.files.disk import RealDisk
from tests.simulation.simulation import Host, Simulation

GOLDEN = Path(__file__).parents[2] / "golden" / "store" / "clean" / "config"
WITH_FILTERS = Path(__file__).parents[2] / "golden" / "filters" / "store" / "config"
HOST = "10.0.0.1"
FILE = Path("/store/config/consumerOffset.json")
BACKUP = Path("/store/config/consumerOffset.json.bak")


def file_of(consumer_offsets: ConsumerOffsets, host: Host) -> StateFile[OffsetTable]:
    return StateFile(host.disk, FILE, consumer_offsets.to_table, host.runtime())


def saved(*offsets: int) -> OffsetTable:
    return OffsetTable({"T@g": dict(enumerate(offsets))})


@pytest.fixture
def host() -> Any:
    with Simulation("state files") as sim:
        host = sim.host(HOST)
        host.boot()
        yield host


@pytest.mark.parametrize(
    ("folder", "name", "kind"),
    [
        (GOLDEN, state_files.TOPICS, TopicTable),
        (GOLDEN, state_files.GROUPS, GroupTable),
        (GOLDEN, state_files.CONSUMER_OFFSETS, OffsetTable),
        (GOLDEN, state_files.DELAY_OFFSETS, DelayOffsetTable),
        (GOLDEN, state_files.CONSUMER_FILTERS, FilterTable),
        (WITH_FILTERS, state_files.CONSUMER_FILTERS, FilterTable),
    ],
)
async def test_apaches_own_files_are_read_and_written_to_the_last_byte(
    tmp_path: Path, folder: Path, name: str, kind: Any
) -> None:
    golden = (folder / name).read_bytes()
    (tmp_path / name).write_bytes(golden)
    table = StateFile(RealDisk(), tmp_path / name, dict, Runtime()).load(kind.from_json)  # type: ignore[type-var]
    (tmp_path / name).unlink()
    await StateFile(RealDisk(), tmp_path / name, lambda: table, Runtime()).flush()  # type: ignore[type-var]
    assert (tmp_path / name).read_bytes() == golden


def test_where_nothing_was_saved_there_is_nothing(host: Host) -> None:
    assert file_of(ConsumerOffsets(), host).load(OffsetTable.from_json) is None


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b"\xff", b'{"offsetTable":{"T@g":5}}'])
def test_a_file_that_cannot_be_read_is_replaced_by_its_backup(host: Host, broken: bytes) -> None:
    host.disk.replace(FILE, broken)
    host.disk.replace(BACKUP, b'{"offsetTable":{"T@g":{0:5}}}')
    assert file_of(ConsumerOffsets(), host).load(OffsetTable.from_json) == saved(5)
    assert host.disk.read(FILE) == host.disk.read(BACKUP), (
        "the next write must not make the broken file the backup"
    )


@pytest.mark.parametrize("broken", [b"", b"{"])
def test_what_cannot_be_read_at_all_is_moved_aside_and_told_of_once(
    host: Host, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    host.disk.replace(FILE, broken)
    host.disk.replace(BACKUP, b"{x")
    file = file_of(ConsumerOffsets(), host)
    assert file.load(OffsetTable.from_json) is None
    assert file.was_damaged
    assert host.disk.read(FILE) is host.disk.read(BACKUP) is None
    aside = FILE.with_name(f"{FILE.name}.damaged"), BACKUP.with_name(f"{BACKUP.name}.damaged")
    assert [host.disk.read(path) for path in aside] == [broken, b"{x"]
    (line,) = (record.getMessage() for record in caplog.records)
    assert all(str(path) in line for path in aside)
    assert "the broker starts without this table" in line
    host.disk.replace(FILE, b"again")
    file.load(OffsetTable.from_json)
    assert host.disk.read(aside[0]) == broken
    assert host.disk.read(FILE.with_name(f"{FILE.name}.damaged-2")) == b"again"


def test_a_write_keeps_what_was_there_as_the_backup(host: Host) -> None:
    consumer_offsets = ConsumerOffsets()
    file = file_of(consumer_offsets, host)
    for offset in (1, 2, 2):
        consumer_offsets.commit("g", "T", 0, offset)
        host.call(file.flush)
    assert host.disk.read(FILE) == b'{\n\t"offsetTable":{\n\t\t"T@g":{0:2\n\t\t}\n\t}\n}'
    assert host.disk.read(BACKUP) == b'{\n\t"offsetTable":{\n\t\t"T@g":{0:1\n\t\t}\n\t}\n}'


def test_many_changes_are_few_writes_and_the_last_one_is_saved() -> None:
    with Simulation("many changes") as sim:
        host = sim.host(HOST)
        host.boot()
        consumer_offsets = ConsumerOffsets()
        outcomes: list[OSError | None] = []
        file = file_of(consumer_offsets, host)

        async def change_a_lot() -> None:
            for offset in range(100):
                consumer_offsets.commit("g", "T", 0, offset)
                file.changed(outcomes.append)
            await file.flush()

        host.call(change_a_lot)
        assert outcomes == [None] * 100
        assert [fact[2:] for fact in sim.facts if "rename" in fact] == [("rename", str(FILE))]
        assert file_of(consumer_offsets, host).load(OffsetTable.from_json) == saved(99)


@pytest.mark.parametrize("seed", range(25))
def test_what_was_reported_as_saved_survives_a_loss_of_power(seed: int) -> None:
    with Simulation(seed) as sim:
        host = sim.host(HOST)
        host.boot()
        consumer_offsets, reported = ConsumerOffsets(), [-1]
        file = file_of(consumer_offsets, host)

        async def change_and_report() -> None:
            for offset in range(20):
                consumer_offsets.commit("g", "T", 0, offset)
                await file.flush()
                reported.append(offset)

        host.drive.lose_power_after(sim.random.randrange(160))
        host.start(change_and_report)
        sim.run_for(60)
        if not host.is_running:
            host.boot()
        found = file_of(consumer_offsets, host).load(OffsetTable.from_json)
        offset = -1 if found is None else found.offsets["T@g"][0]
        assert reported[-1] <= offset <= reported[-1] + 1


def test_what_cannot_be_written_is_told_once_and_tried_again_until_it_can(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    consumer_offsets = ConsumerOffsets()
    file = file_of(consumer_offsets, host)
    consumer_offsets.commit("g", "T", 0, 1)
    host.call(file.flush)
    host.drive.failure = errno.ENOSPC
    consumer_offsets.commit("g", "T", 0, 2)

    async def try_again() -> None:
        for _ in range(3):
            file.retry() if caplog.records else file.changed()
            await asyncio.sleep(1)

    host.call(try_again)
    assert file_of(consumer_offsets, host).load(OffsetTable.from_json) == saved(1), (
        "the old one is whole"
    )
    host.drive.failure = None
    host.call(try_again)
    assert file_of(consumer_offsets, host).load(OffsetTable.from_json) == saved(2)
    told = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert told == ["file not written, it stays as it was and is tried again", "file written again"]


def test_what_a_crash_left_of_a_write_is_removed(host: Host) -> None:
    for path in (FILE, BACKUP):
        host.disk.replace(path.with_name(path.name + ".tmp"), b"{")
    host.disk.replace(FILE, b'{"offsetTable":{"T@g":{0:5}}}')
    assert file_of(ConsumerOffsets(), host).load(OffsetTable.from_json) == saved(5)
    assert [name for name, _ in host.disk.names(FILE.parent)] == [FILE.name]


def test_a_full_disk_is_reported_and_the_next_change_is_tried_again(host: Host) -> None:
    consumer_offsets = ConsumerOffsets()
    outcomes: list[OSError | None] = []
    file = file_of(consumer_offsets, host)
    host.drive.failure = errno.ENOSPC

    async def change() -> None:
        file.changed(outcomes.append)
        with pytest.raises(OSError, match="space"):
            await file.flush()

    host.call(change)
    assert [type(outcome) for outcome in outcomes] == [OSError]
    host.drive.failure = None
    consumer_offsets.commit("g", "T", 0, 1)
    host.call(file.flush)
    assert file_of(consumer_offsets, host).load(OffsetTable.from_json) == saved(1)
