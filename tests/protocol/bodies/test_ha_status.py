"""The replication status as 5.x's brokers write it, and with our own members behind it."""

from __future__ import annotations

from typing import Any

import pytest

from roquet.protocol.bodies.ha_status import FollowerStatus, HaStatus, LogRange, SlaveStatus
from roquet.protocol.bodies.tables import parse
from roquet.protocol.json.dialect import dump_bytes

MASTER = (
    b'{"haClientRuntimeInfo":null,"haConnectionInfo":[{"addr":"10.0.0.2:40000","diff":5,"inSync":true,'
    b'"slaveAckOffset":95,"transferFromWhere":96,"transferredByteInSecond":7,"state":"transfer",'
    b'"diffMs":1,"silentMs":2,"reason":""}],"inSyncSlaveNums":1,"master":true,'
    b'"masterCommitLogMaxOffset":100}'
)
SLAVE = (
    b'{"haClientRuntimeInfo":{"activated":true,"lastReadTimestamp":1,"lastWriteTimestamp":2,'
    b'"masterAddr":"10.0.0.1:10912","masterFlushOffset":0,"maxOffset":90,"transferredByteInSecond":7,'
    b'"state":"transfer","reason":"odd"},"haConnectionInfo":[],"inSyncSlaveNums":0,"master":false,'
    b'"masterCommitLogMaxOffset":90,"storeTrouble":"full"}'
)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (
            MASTER,
            HaStatus(
                100, (SlaveStatus("10.0.0.2:40000", 95, 5, True, 7, 96, "transfer", 1, 2, ""),)
            ),
        ),
        (
            SLAVE,
            HaStatus(
                90,
                follower=FollowerStatus("10.0.0.1:10912", 7, 90, 1, 2, True, "transfer", "odd"),
                trouble="full",
            ),
        ),
    ],
)
def test_a_status_is_written_and_read(text: bytes, status: HaStatus) -> None:
    assert dump_bytes(status.to_json()) == text
    assert parse(text, HaStatus.from_json) == status


@pytest.mark.parametrize(
    ("json", "follower"),
    [
        ({}, None),
        ({"master": True, "haClientRuntimeInfo": {"maxOffset": 5}}, None),
        ({"haClientRuntimeInfo": {"maxOffset": 5}}, None),
        ({"master": False}, FollowerStatus()),
        ({"master": False, "haClientRuntimeInfo": None}, FollowerStatus()),
        ({"master": False, "haClientRuntimeInfo": {"maxOffset": 5}}, FollowerStatus(end=5)),
    ],
)
def test_who_does_not_say_that_it_is_a_slave_is_a_master(
    json: dict[str, Any], follower: FollowerStatus | None
) -> None:
    """A master of 5.x writes members of a slave, too."""
    assert HaStatus.from_json(json).follower == follower
    assert HaStatus.from_json(json).is_master == (follower is None)


def test_the_bounds_of_a_log_are_in_the_runtime_info() -> None:
    table = {"commitLogMinOffset": "5", "commitLogMaxOffset": "90", "other": "x"}

    assert LogRange.from_json({"table": table}) == LogRange(5, 90)
