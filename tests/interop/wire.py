"""The least of the remoting protocol: one JSON request, one answer, over a plain socket.

It stands apart from `roquet.protocol` on purpose: it waits for and questions servers that are
themselves to be judged.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SEND_MESSAGE = 10
GET_ROUTE_OF_TOPIC = 105
GET_CLUSTER = 106
VERSION = 407  # 4.9.7
ANSWER_S_MAX: Final = 30
"""Longer than a slave may keep a send waiting (`roquet_cluster.PATIENT`)."""
PROBE_S_MAX: Final = 3
"""Of a question that is asked again and again."""


@dataclass(frozen=True)
class Answer:
    code: int
    header: dict[str, Any]
    body: bytes


def parse_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def accepts(address: str) -> bool:
    """Whether something listens there."""
    try:
        with socket.create_connection(parse_address(address), timeout=1):
            return True
    except OSError:
        return False


def ask(
    address: str,
    code: int,
    fields: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    version: int = VERSION,
    timeout_s: float = ANSWER_S_MAX,
) -> Answer:
    """One request and its answer; OSError if there is none."""
    with socket.create_connection(parse_address(address), timeout=timeout_s) as link:
        link.sendall(request(code, fields, body, version=version))
        return read_answer(link)


def request(
    code: int, fields: Mapping[str, str] | None = None, body: bytes = b"", *, version: int = VERSION
) -> bytes:
    header: dict[str, Any] = {"code": code, "flag": 0, "language": "JAVA", "opaque": 1}
    header |= {"serializeTypeCurrentRPC": "JSON", "version": version} | (
        {"extFields": dict(fields)} if fields else {}
    )
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


def send_fields(topic: str, queue_id: int = 0, properties: str = "") -> dict[str, str]:
    """What a send has to say of its message, for a topic that is there or that the broker makes."""
    fields = {
        "producerGroup": "probe",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
    }
    fields |= {
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": "0",
        "flag": "0",
        "properties": properties,
    }
    return fields


def json_body(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def read_answer(link: socket.socket) -> Answer:
    (size,) = struct.unpack(">I", _read(link, 4))
    frame = _read(link, size)
    (head_size,) = struct.unpack_from(">I", frame)
    header = json.loads(frame[4 : 4 + head_size])
    return Answer(header["code"], header, frame[4 + head_size :])


def has_broker(name_server: str, broker: str) -> bool:
    """Whether the name server lists the broker's address."""
    try:
        return f'"{broker}"'.encode() in ask(name_server, GET_CLUSTER, timeout_s=PROBE_S_MAX).body
    except (OSError, ValueError):
        return False


def has_topic(name_server: str, topic: str) -> bool:
    """Whether the name server has a route for the topic."""
    try:
        return (
            ask(name_server, GET_ROUTE_OF_TOPIC, {"topic": topic}, timeout_s=PROBE_S_MAX).code == 0
        )
    except (OSError, ValueError):
        return False


def _read(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = link.recv(size - len(data))
        if not piece:
            raise ConnectionError("closed before the answer was complete")
        data += piece
    return bytes(data)
