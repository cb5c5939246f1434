"""A name server's life: its port, and the files that it reads when it starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.errors import CannotListen, StoreError
from roquet.nameserver.server import NameServer
from roquet.protocol.remoting.codes import RequestCode
from tests.nameserver.started import (
    config_in,
    put,
    start,
)


async def test_key_values_outlive_the_server(tmp_path: Path) -> None:
    first = await start(config_in(tmp_path))
    await put(await first.connect())
    await first.stop()

    second = await start(config_in(tmp_path))
    answer = await (await second.connect()).ask(
        RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG"
    )
    await second.stop()

    assert answer.body == b'{"table":{"T":"a:4"}}'
    assert json.loads((tmp_path / "kv" / "kvConfig.json").read_bytes()) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"T": "a:4"}}
    }


async def test_a_broken_key_value_file_is_replaced_by_its_backup(tmp_path: Path) -> None:
    first = await start(config_in(tmp_path))
    peer = await first.connect()
    await put(peer, "a:4")
    await put(peer, "a:8")
    await first.stop()
    (tmp_path / "kv" / "kvConfig.json").write_bytes(b'{"configTable":')

    second = await start(config_in(tmp_path))
    peer = await second.connect()
    answer = await peer.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG")
    await put(peer, "a:16")
    await second.stop()

    assert answer.body == b'{"table":{"T":"a:4"}}'
    backup = json.loads((tmp_path / "kv" / "kvConfig.json.bak").read_bytes())
    assert backup == {"configTable": {"ORDER_TOPIC_CONFIG": {"T": "a:4"}}}, "not what is broken"
    assert (tmp_path / "kv" / "kvConfig.json.damaged").read_bytes() == b'{"configTable":'


def test_key_values_that_cannot_be_read_at_all_stop_the_server(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    Path(config.kv_config_path).parent.mkdir()
    Path(config.kv_config_path).write_bytes(b"{")

    with pytest.raises(StoreError, match=r"kvConfig\.json"):
        NameServer(config)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"configTable":[1]}', b"\xff"])
def test_a_key_value_file_of_another_form_stops_the_server(tmp_path: Path, content: bytes) -> None:
    config = config_in(tmp_path)
    Path(config.kv_config_path).parent.mkdir()
    Path(config.kv_config_path).write_bytes(content)
    with pytest.raises(StoreError, match="repair or remove it"):
        NameServer(config)


async def test_a_server_is_found_at_the_port_that_the_system_chose(tmp_path: Path) -> None:
    started = await start(config_in(tmp_path))
    server = started.server
    assert server.ports == (server.port,)
    assert server.address == f"127.0.0.1:{server.port}"
    await started.stop()


async def test_a_port_in_use_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    started = await start(config_in(tmp_path))
    second = NameServer(replace(config_in(tmp_path / "second"), listen_port=started.server.port))
    with pytest.raises(CannotListen, match="listenPort"):
        await second.start()
    await started.stop()


async def test_a_server_that_never_started_stops(tmp_path: Path) -> None:
    server = NameServer(config_in(tmp_path))
    await server.stop()
    assert server.port == 0


async def test_connections_end_when_the_server_stops(tmp_path: Path) -> None:
    started = await start(config_in(tmp_path))
    peer = await started.connect()
    await peer.register()
    await started.server.stop()
    await peer.closed.wait()
    assert not peer.connection.is_open
