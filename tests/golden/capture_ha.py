"""What an Apache master and an Apache slave send each other: the log on one connection, the tables
as frames.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

from tests.golden.collection import Collection, Peer, shown
from tests.golden.frames import exchanges
from tests.golden.proxy import Connection, RecordingProxy, Side
from tests.golden.stage import BROKER, IPV4, NAME_SERVER, Stage, say
from tests.interop import wire
from tests.interop.apache import ApacheBroker, Version, free_port, run_driver, wait_until

TOPIC = "GoldenHa"
PROPERTIES = {"mappedFileSizeCommitLog": 16_384, "mappedFileSizeConsumeQueue": 2_000}
SLAVE = Peer("ha/frames", "Apache slave 4.9.7")
GET_RUNTIME_INFO = 28
TABLES = {21, 43, 45, 201}
REPORT_SIZE = 8
CHUNK_HEADER = struct.Struct(">qi")
SETTLE_SECONDS = 60


def capture(collection: Collection) -> None:
    collection.clear("ha")
    line = f"BrokerStartup, master and slave, with {shown(*(f'{key}={value}' for key, value in PROPERTIES.items()))}"
    with (
        Stage(PROPERTIES) as stage,
        RecordingProxy(stage.name_server.address, free_port()) as slave_road,
    ):
        _produce(stage, 30, "--size", 1000, "--compress-over", 100_000)
        _produce(stage, 1, "--delay", 1)
        run_driver(
            Version.V4, "consume", stage.namesrv, TOPIC, "GroupHa", 31, 30, java_options=[IPV4]
        ).check()
        slave = ApacheBroker(
            slave_road.address,
            role="SLAVE",
            broker_id=1,
            properties=PROPERTIES,
            java_options=[IPV4],
        )
        _start(stage, slave)
        with slave:
            say("slave started, its store empty")
            _await_copy(stage, slave)
            _produce(stage, 3)
            _await_copy(stage, slave)
            wait_until(
                lambda: _idle(stage.ha_door.connections[0]), "heartbeats both ways", SETTLE_SECONDS
            )
            wait_until(
                lambda: set(_asked(stage)) >= TABLES, "the slave's questions", SETTLE_SECONDS
            )
            slave.stop()
            _produce(stage, 5)
            say("slave started again")
            _start(stage, slave)
            _await_copy(stage, slave)
            slave.stop()
            stage.broker.stop()
            _add_log(collection, "master", stage.broker.store_dir, line)
            _add_log(collection, "slave", slave.store_dir, line)
        _add_streams(
            collection, "fresh", stage.ha_door.connections[0], f"{line}; the slave's store is empty"
        )
        _add_streams(
            collection,
            "resumed",
            stage.ha_door.connections[1],
            f"{line}; the slave was stopped and started",
        )
        for door in (stage.broker_door, stage.vip_door):
            asked = [
                connection for connection in door.connections if TABLES & set(_codes(connection))
            ]
            collection.add_exchanges(SLAVE, BROKER, line, asked)
        collection.add_exchanges(SLAVE, NAME_SERVER, line, slave_road.connections)


def _start(stage: Stage, slave: ApacheBroker) -> None:
    """As `slave.start()`, but without questions of ours on the road that is recorded."""
    slave.start(registered=False)
    listed = partial(wire.has_broker, stage.name_server.address, slave.address)
    slave.wait_ready(listed, "the name server lists the slave")


def _produce(stage: Stage, count: int, *words: object) -> None:
    run_driver(
        Version.V4, "produce", stage.namesrv, TOPIC, count, *map(str, words), java_options=[IPV4]
    ).check()


def _await_copy(stage: Stage, slave: ApacheBroker) -> None:
    wait_until(
        lambda: _log_end(slave.address) == _log_end(stage.broker.address),
        "the slave's copy",
        SETTLE_SECONDS,
    )


def _log_end(address: str) -> str:
    answer = wire.ask(address, GET_RUNTIME_INFO)
    if answer.code != 0:  # In its first second a broker has no sample to tell of, and fails to.
        return ""
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table["commitLogMaxOffset"]


def _codes(connection: Connection) -> Iterator[int]:
    return (exchange.request.code for exchange in exchanges(connection) if exchange.answer)


def _asked(stage: Stage) -> Iterator[int]:
    """The codes answered on either port of the master."""
    for door in (stage.broker_door, stage.vip_door):
        for connection in door.connections:
            yield from _codes(connection)


def _reports(connection: Connection) -> list[bytes]:
    stream = connection.stream(Side.CALLER)
    return [stream[at : at + REPORT_SIZE] for at in range(0, len(stream), REPORT_SIZE)]


def _chunks(connection: Connection) -> list[bytes]:
    stream, found, at = connection.stream(Side.SERVER), [], 0
    while at + CHUNK_HEADER.size <= len(stream):
        _, size = CHUNK_HEADER.unpack_from(stream, at)
        end = at + CHUNK_HEADER.size + size
        found.append(stream[at:end])
        at = end
    return found


def _idle(connection: Connection) -> bool:
    """Whether both sides have said that they are there without having news."""
    return "heartbeat-of-slave" in _parts(connection) and "heartbeat-of-master" in _parts(
        connection
    )


def _parts(connection: Connection) -> dict[str, tuple[Side, bytes]]:
    reports, chunks = _reports(connection), _chunks(connection)
    repeated = [later for earlier, later in pairwise(reports[1:]) if earlier == later]
    found = {
        "first-report": (Side.CALLER, reports[:1]),
        "acknowledgement": (
            Side.CALLER,
            [report for report in reports[1:] if report != reports[0]],
        ),
        "heartbeat-of-slave": (Side.CALLER, repeated),
        "chunk": (Side.SERVER, [chunk for chunk in chunks if len(chunk) > CHUNK_HEADER.size]),
        "heartbeat-of-master": (
            Side.SERVER,
            [chunk for chunk in chunks if len(chunk) == CHUNK_HEADER.size],
        ),
    }
    return {
        name: (side, all_of_kind[0]) for name, (side, all_of_kind) in found.items() if all_of_kind
    }


def _add_streams(collection: Collection, name: str, connection: Connection, line: str) -> None:
    writers = {Side.CALLER: (SLAVE.title, BROKER.title), Side.SERVER: (BROKER.title, SLAVE.title)}
    for part, (side, data) in _parts(connection).items():
        who, whom = writers[side]
        collection.add(
            f"ha/{name}/{part}.bin", data, part.replace("-", " "), who, line, f"{who} to {whom}"
        )
    for side, file in ((Side.CALLER, "slave-to-master"), (Side.SERVER, "master-to-slave")):
        who, whom = writers[side]
        what = "all bytes of one connection in this direction"
        collection.add(
            f"ha/{name}/{file}.bin", connection.stream(side), what, who, line, f"{who} to {whom}"
        )
    names = {Side.CALLER: "slave", Side.SERVER: "master"}
    steps = [
        json.dumps({"at_ms": piece.at_ms, "from": names[piece.side], "size": len(piece.data)})
        for piece in connection.pieces
    ]
    text = "[\n" + ",\n".join(steps) + "\n]\n"
    what = "when, since the connection was accepted, how many bytes of which stream passed"
    collection.add(f"ha/{name}/timeline.json", text.encode(), what, "tests.golden.proxy", line)


def _add_log(collection: Collection, name: str, store: Path, line: str) -> None:
    for file in sorted((store / "commitlog").iterdir()):
        what = f"commit log file of the {name} after it stopped, whole"
        collection.add(
            f"ha/{name}/commitlog/{file.name}",
            file.read_bytes(),
            what,
            f"Apache {name} 4.9.7",
            line,
        )
