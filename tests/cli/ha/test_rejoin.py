"""`roquet ha rejoin`: who is followed as which broker, and what becomes of the cut off records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from roquet.cli.main import main
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.store import Store
from roquet.transport.handling import Answer
from tests.admin.scripted import says
from tests.cli.ha.conftest import ServedCluster
from tests.storage.records import bodies_in
from tests.storage.small_stores import Clock, opened, put

COMMON: Final = (b"one", b"two")
ALONE: Final = (b"three", b"four")
SIZES: Final = (
    "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=200\nmaxHashSlotNum=50\n"
    "maxIndexNum=40\n"
)


class Former:
    """A former master that stored two messages more than the one that took its place.

    :param settings: lines of its settings file.
    """

    def __init__(self, served: ServedCluster, folder: Path, settings: str = "") -> None:
        self.served = served
        self.store_folder = folder / "former"
        self.path = folder / "broker.conf"
        self.path.write_text(
            f"brokerName=b\nbrokerIP1=127.0.0.1\nstorePathRootDir={self.store_folder}\n"
            f"{SIZES}{settings}"
        )
        clock = Clock()
        own, self._masters = opened(self.store_folder, clock), opened(folder / "master", Clock())
        for store, bodies in (own, COMMON + ALONE), (self._masters, COMMON):
            for body in bodies:
                put(store, body)
        own.close()
        end = self._masters.log.end
        log = {"table": {"commitLogMinOffset": "0", "commitLogMaxOffset": str(end)}}
        self.master = served.broker(
            {
                RequestCode.GET_BROKER_RUNTIME_INFO: says(log),
                RequestCode.VIEW_MESSAGE_BY_ID: self._record,
            }
        )

    def _record(self, request: Command) -> Answer:
        record = self._masters.log.record_at(int(request.fields["offset"]))
        assert record is not None
        return request.answer(ResponseCode.SUCCESS, body=record)

    def rejoin(self, *words: object) -> Result:
        return CliRunner().invoke(main, ["ha", "rejoin", "-c", str(self.path), *map(str, words)])

    def rejoin_by_names(self, *words: object) -> Result:
        return self.rejoin("-n", self.served.name_server, *words)

    def bodies(self) -> tuple[bytes, ...]:
        """What its store has now."""
        store: Store = opened(self.store_folder, Clock())
        found = tuple(bodies_in(store, "T"))
        store.close()
        return found

    def role(self) -> list[str]:
        """Role and id in its settings file."""
        return [
            line
            for line in self.path.read_text().splitlines()
            if line.startswith(("brokerRole=", "brokerId="))
        ]


@pytest.fixture
def former(served: ServedCluster, tmp_path: Path) -> Former:
    return Former(served, tmp_path)


def test_what_only_the_former_master_has_is_saved_in_its_store_and_cut_off(former: Former) -> None:
    result = former.rejoin_by_names()

    assert (result.exit_code, result.stderr) == (0, "")
    equal, alone, saved, role = result.stdout.splitlines()
    assert equal.startswith(f"the log equals that of the master at {former.master} up to offset ")
    assert alone.startswith("2 records, ")
    folder = saved.rpartition(" ")[2]
    assert Path(folder).is_relative_to(former.store_folder)
    assert role == (f"{former.path} now has brokerRole=SLAVE, brokerId=1: start the broker")
    assert former.bodies() == COMMON
    assert former.role() == ["brokerRole=SLAVE", "brokerId=1"]


def test_the_records_may_be_saved_as_lines_of_json(former: Former, tmp_path: Path) -> None:
    output = tmp_path / "saved.json"

    result = former.rejoin_by_names("-o", output)

    assert result.stdout.splitlines()[2] == f"the records are saved in {output}"
    saved = [json.loads(line) for line in output.read_text().splitlines()]
    assert tuple(each["body"].encode() for each in saved) == ALONE
    assert former.bodies() == COMMON


def test_a_file_that_exists_is_not_replaced_and_nothing_is_cut_off(
    former: Former, tmp_path: Path
) -> None:
    output = tmp_path / "saved.json"
    output.write_text("of another rejoin")

    result = former.rejoin_by_names("-o", output)

    assert result.exit_code == 2
    assert str(output) in result.stderr
    assert output.read_text() == "of another rejoin"
    assert (former.bodies(), former.role()) == (COMMON + ALONE, [])


def test_a_dry_run_changes_nothing(former: Former) -> None:
    result = former.rejoin_by_names("--dry-run")

    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)
    assert (former.bodies(), former.role()) == (COMMON + ALONE, [])


def test_a_log_that_is_equal_is_not_cut(former: Former) -> None:
    former.rejoin_by_names()

    result = former.rejoin_by_names()

    assert len(result.stdout.splitlines()) == 2, "up to where it is equal, and the role"
    assert former.bodies() == COMMON


def test_the_first_id_that_no_broker_has_is_taken(former: Former) -> None:
    former.served.listed["b"] |= {1: "10.0.0.1:10911", 3: "10.0.0.3:10911"}

    former.rejoin_by_names()

    assert former.role() == ["brokerRole=SLAVE", "brokerId=2"]


def test_a_slave_keeps_its_id(served: ServedCluster, tmp_path: Path) -> None:
    former = Former(served, tmp_path, "brokerRole=SLAVE\nbrokerId=4\n")

    former.rejoin_by_names()

    assert former.role() == ["brokerRole=SLAVE", "brokerId=4"]


def test_who_names_master_and_id_needs_no_name_server(former: Former) -> None:
    assert former.rejoin("-m", former.master, "--id", 7).exit_code == 0
    assert former.role() == ["brokerRole=SLAVE", "brokerId=7"]


def test_the_master_that_the_operator_names_counts(former: Former) -> None:
    former.served.listed["b"] = {0: "127.0.0.1:1", 1: former.master}

    result = former.rejoin_by_names("-m", former.master)

    assert result.exit_code == 0
    assert former.role() == ["brokerRole=SLAVE", "brokerId=2"]


def test_without_name_servers_master_and_id_are_asked_for(former: Former) -> None:
    result = former.rejoin("-m", former.master)

    assert result.exit_code == 2
    assert result.stderr == (
        "roquet: no name server is configured: give --namesrv, or --master and --id\n"
    )


@pytest.mark.parametrize("listed", [{}, {"b": {0: "127.0.0.1:10911"}}, {"b": {1: "10.0.0.1:1"}}])
def test_without_another_master_nothing_is_done(
    former: Former, listed: dict[str, dict[int, str]]
) -> None:
    """It may be listed itself, as it was until it stopped."""
    former.served.listed = listed

    result = former.rejoin_by_names()

    assert result.exit_code == 2
    assert "no other master of b is registered at the name servers" in result.stderr
    assert (former.bodies(), former.role()) == (COMMON + ALONE, [])
