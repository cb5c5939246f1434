"""`roquet ha`: what its tables say, and what ends a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from roquet.cli.main import main
from roquet.protocol.bodies.ha_status import FollowerStatus, HaStatus, SlaveStatus
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.admin.scripted import Reply, refuses, says
from tests.cli.ha.conftest import ServedCluster

SLAVE_STATUS: Final = SlaveStatus(
    "10.0.1.2:5000",
    acked=1700,
    behind=1200,
    behind_ms=2500,
    silent_ms=300,
    bytes_per_s=4000,
    is_in_sync=False,
    state="streaming",
    reason="the network is slow",
)
UNSUPPORTED: Final = refuses(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")


def run(served: ServedCluster, *words: object) -> Result:
    return CliRunner().invoke(main, ["ha", *map(str, words), "-n", served.name_server])


def replies(end: int, status: Reply) -> dict[int, Reply]:
    log = {"table": {"commitLogMinOffset": "0", "commitLogMaxOffset": str(end)}}
    return {
        RequestCode.GET_BROKER_RUNTIME_INFO: says(log),
        RequestCode.GET_BROKER_HA_STATUS: status,
    }


def rows(result: Result) -> list[list[str]]:
    """The lines of each table, cells with one blank between them; a blank line ends a table."""
    assert result.exit_code == 0, result.output
    return [
        [" ".join(line.split()) for line in text.splitlines()]
        for text in result.stdout.split("\n\n")
    ]


# status


def test_status_shows_where_each_log_ends_and_how_far_slaves_are_behind(
    served: ServedCluster,
) -> None:
    master = served.broker(replies(2900, says(HaStatus(2900, ()).to_json())))
    follower = FollowerStatus(master, end=1700, state="waiting", reason="its master is away")
    status = HaStatus(1700, (), follower, trouble="a sync has failed")
    slave = served.broker(replies(1700, says(status.to_json())), broker_id=1)

    (members,) = rows(run(served, "status"))

    assert members == [
        "BROKER ID ADDRESS LOG END LAG STATE REASON",
        f"b 0 {master} 2,900 - master",
        f"b 1 {slave} 1,700 1,200 waiting its master is away; a sync has failed",
    ]


def test_status_shows_what_a_master_says_of_its_slaves(served: ServedCluster) -> None:
    served.broker(replies(2900, says(HaStatus(2900, (SLAVE_STATUS,)).to_json())))

    _, (titles, slave) = rows(run(served, "status"))

    assert titles.startswith("MASTER SLAVE ACKED LAG")
    assert slave == ("b 10.0.1.2:5000 1,700 1,200 2.5 0.3 4,000 no streaming the network is slow")


def test_status_says_of_whom_it_knows_nothing_and_why(served: ServedCluster) -> None:
    served.broker(replies(2900, UNSUPPORTED))
    silent: dict[int, Reply] = {RequestCode.GET_BROKER_RUNTIME_INFO: refuses(1, "no")}
    served.broker({**replies(0, UNSUPPORTED), **silent}, broker_id=1)

    ((_, apache, failed),) = rows(run(served, "status"))

    assert apache.endswith(
        " 2,900 - unknown the broker does not support the request, as Apache's 4.x"
    )
    assert " - - no answer " in failed
    assert failed.endswith("code 1: no")


def test_status_as_json_has_all_of_it(served: ServedCluster) -> None:
    status = HaStatus(2900, (SLAVE_STATUS,))
    address = served.broker(replies(2900, says(status.to_json())))

    (found,) = json.loads(run(served, "status", "--json").stdout)

    (member,) = found["members"]
    assert (found["name"], member["address"], member["end"]) == ("b", address, 2900)
    assert member["status"]["slaves"][0]["behind"] == 1200


def test_status_may_be_asked_of_one_broker_name(served: ServedCluster) -> None:
    for name in ("a", "b"):
        served.broker(replies(1, says(HaStatus().to_json())), name=name)

    ((_, *members),) = rows(run(served, "status", "-b", "b"))

    assert [row[0] for row in members] == ["b"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "roquet: no broker is registered at the name servers\n"),
        (("-b", "x"), "roquet: no broker x is registered at the name servers\n"),
    ],
)
def test_without_a_broker_there_is_no_status(
    served: ServedCluster, words: tuple[str, ...], said: str
) -> None:
    result = run(served, "status", *words)

    assert (result.exit_code, result.stdout, result.stderr) == (2, "", said)


# promote


@pytest.mark.parametrize(
    ("words", "header"),
    [
        ((), {"role": "ASYNC_MASTER", "fenced": "false", "forced": "false"}),
        (
            ("--role", "SYNC_MASTER", "--fenced"),
            {"role": "SYNC_MASTER", "fenced": "true", "forced": "false"},
        ),
        (("--force",), {"role": "ASYNC_MASTER", "fenced": "false", "forced": "true"}),
    ],
)
def test_a_slave_is_promoted_as_the_options_say(
    served: ServedCluster, words: tuple[str, ...], header: dict[str, str]
) -> None:
    slave = served.broker({RequestCode.PROMOTE_SLAVE: says(b"")})

    result = run(served, "promote", slave, *words)

    assert (result.exit_code, result.stdout) == (0, f"{slave} is now the master\n")
    assert [request.fields for request in served.requests] == [header]


def test_what_a_slave_refuses_is_told_in_a_line(served: ServedCluster) -> None:
    slave = served.broker({RequestCode.PROMOTE_SLAVE: refuses(1, "the master answers")})

    result = run(served, "promote", slave)

    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("roquet: ")
    assert "the master answers" in line


def test_a_slave_gets_no_other_role(served: ServedCluster) -> None:
    result = run(served, "promote", "a:1", "--role", "SLAVE")

    assert result.exit_code == 2
    assert "'SLAVE' is not one of" in result.stderr


# rejoin


def test_a_rejoin_that_cannot_be_done_is_told_in_a_line(
    served: ServedCluster, tmp_path: Path
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(f"brokerName=b\nstorePathRootDir={tmp_path}/store\n")

    result = run(served, "rejoin", "-c", path)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "roquet: no other master of b is registered at the name servers: promote a slave first\n"
    )
