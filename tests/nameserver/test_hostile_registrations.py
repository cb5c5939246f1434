"""Short registrations that would take long to read."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from struct import pack
from typing import Final

import pytest

from roquet.protocol.bodies.tables import Registration, TopicConfig, TopicTable
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.harness import Client
from tests.simulation.nodes import NAME_SERVER_PORT, NameServerNode
from tests.simulation.simulation import Simulation

ADDRESS: Final = "10.0.0.2"
DIALECT: Final = b"{'a':[" + b"1," * 5000 + b"1]}"
"""Not standard JSON; 64 MB of it, which are 64 KB compressed, take Python most of a minute."""
NO_TOPICS: Final = pack(">i", 0)


@pytest.fixture
def client() -> Iterator[Client]:
    with Simulation(1) as sim:
        node = NameServerNode(sim.host(ADDRESS))
        node.start()
        sim.run_until(lambda: node.is_serving, 10)
        yield Client(sim, sim.host("10.0.0.9"), f"{ADDRESS}:{NAME_SERVER_PORT}")


def sized(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


def register(client: Client, body: bytes, name: str = "b", *, compressed: bool) -> tuple[int, str]:
    fields = {
        "brokerName": name,
        "brokerAddr": "10.0.0.1:1",
        "clusterName": "c",
        "brokerId": 0,
        "haServerAddr": "10.0.0.1:2",
    }
    answer = client.call(
        RequestCode.REGISTER_BROKER, body, **fields, compressed=str(compressed).lower()
    )
    return answer.code, str(answer.remark)


@pytest.mark.parametrize(
    "body",
    [
        sized(DIALECT) + NO_TOPICS + sized(b"[]"),
        sized(b"{}" + b" " * 65_536) + NO_TOPICS + sized(b"[]"),
        sized(b"{}") + NO_TOPICS + sized(DIALECT),
        sized(b"{}") + NO_TOPICS + sized(b"[" + b"1," * 40_000 + b"1]"),
    ],
    ids=["version in the dialect", "long version", "servers in the dialect", "many servers"],
)
def test_what_a_compressed_registration_says_beside_topics_is_short(
    client: Client, body: bytes
) -> None:
    code, _ = register(client, zlib.compress(body), compressed=True)
    assert code == ResponseCode.SYSTEM_ERROR
    assert (
        register(client, zlib.compress(sized(b"{}") + NO_TOPICS + sized(b"[]")), compressed=True)[0]
        == 0
    )


def test_a_registration_or_a_version_in_the_dialect_is_refused_beyond_some_values(
    client: Client,
) -> None:
    assert register(client, DIALECT, compressed=False)[0] == ResponseCode.SYSTEM_ERROR
    fields = {
        "brokerName": "b",
        "brokerAddr": "10.0.0.1:1",
        "clusterName": "c",
        "brokerId": 0,
        "haServerAddr": "10.0.0.1:2",
    }
    answer = client.call(RequestCode.QUERY_DATA_VERSION, DIALECT, **fields)
    assert "not standard JSON, and more than" in str(answer.remark) or answer.code == 0
    assert register(client, b"{'topicConfigSerializeWrapper':{}}", compressed=False)[0] == 0
    assert (
        client.call(RequestCode.QUERY_DATA_VERSION, DIALECT, **fields).code
        == ResponseCode.SYSTEM_ERROR
    )


@pytest.mark.parametrize(
    "name", ["b" * 256, "b\nCRITICAL all is lost", "b\u2028x"], ids=["long", "line", "odd line"]
)
def test_names_that_are_too_long_or_break_a_line_are_refused(client: Client, name: str) -> None:
    code, remark = register(client, b"", name, compressed=False)
    assert code == ResponseCode.SYSTEM_ERROR
    assert "allowed are 255 printable ones" in remark
    table = dump_bytes(Registration(TopicTable({name: TopicConfig(name)})).to_json())
    assert register(client, table, compressed=False)[0] == ResponseCode.SYSTEM_ERROR
    assert register(client, b"", "b" * 255, compressed=False)[0] == ResponseCode.SUCCESS


def test_who_registers_in_a_loop_does_not_fill_the_log(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(40):
        fields = {
            "brokerName": "b",
            "brokerAddr": f"10.0.0.1:{number % 10}",
            "clusterName": "c",
            "brokerId": number % 2,
        }
        assert (
            client.call(RequestCode.REGISTER_BROKER, **fields, haServerAddr="").code
            == ResponseCode.SUCCESS
        )
        assert client.call(RequestCode.UNREGISTER_BROKER, **fields).code == ResponseCode.SUCCESS
        client.call(
            RequestCode.UPDATE_NAMESRV_CONFIG,
            b"orderMessageEnable=%s\nodd=1" % (b"true", b"false")[number % 2],
        )
    assert len(caplog.messages) <= 2 * 10 + 2
    assert "settings changed by a client: peer=10.0.0.9" in caplog.text
