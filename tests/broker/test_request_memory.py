"""What a broker makes of a large request stays in proportion to it."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Final

import pytest

from roquet.broker.config.broker import read_config
from roquet.broker.server import Broker
from roquet.common.steps import finished
from roquet.protocol.records.batch import batch_item
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command, decode
from roquet.transport.channels import Channels
from tests.broker.served import SEND

SIZE: Final = 1_100_000
TIMES_MAX: Final = 8
"""Beside the request in the client: the frame, its body by itself, and what becomes of that."""


def sent(code: RequestCode, body: bytes, **fields: object) -> Command:
    named = {**SEND, "b": "T", "e": 0, "i": "", **fields}
    return Command(code, {name: str(value) for name, value in named.items()}, body)


def batch_of(item: bytes, properties: str = "") -> Command:
    return sent(RequestCode.SEND_BATCH_MESSAGE, item * (SIZE // len(item)), i=properties, m="true")


ONE_BYTE: Final = batch_item(0, b"x", b"")
REQUESTS: Final = {
    "a message": (sent(RequestCode.SEND_MESSAGE_V2, bytes(SIZE)), 0),
    "a reply": (sent(RequestCode.SEND_REPLY_MESSAGE_V2, bytes(SIZE)), 1),
    "a batch, 16,000 keys each": (batch_of(batch_item(0, b"x", b"KEYS\x01" + b"k " * 16_000)), 0),
    "a batch, 30 keys each": (batch_of(batch_item(0, bytes(500), b"KEYS\x01" + b"kk " * 30)), 0),
    "a batch, too many of one byte": (batch_of(ONE_BYTE), ResponseCode.MESSAGE_ILLEGAL),
    "a batch, 32 KB for each": (
        batch_of(ONE_BYTE, "p\x01" + "v" * 32_000),
        ResponseCode.MESSAGE_ILLEGAL,
    ),
    "locks": (
        Command(RequestCode.LOCK_BATCH_MQ, {}, b'{"mqSet":[' + b"{}," * (SIZE // 3) + b"{}]}"),
        1,
    ),
    "a heartbeat": (Command(RequestCode.HEART_BEAT, {}, b"[" + b"0," * (SIZE // 2) + b"0]"), 1),
    "settings": (Command(RequestCode.UPDATE_BROKER_CONFIG, {}, b"a=1\n" * (SIZE // 4)), 3),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_large_request_takes_a_small_multiple_of_its_size(
    tmp_path: Path, name: str
) -> None:
    pairs = {
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
    }
    pairs |= {"storePathRootDir": str(tmp_path), "maxIndexNum": "1000000", "maxHashSlotNum": "1000"}
    broker, channels = Broker(read_config(list(pairs.items()), environment={})[0]), Channels()
    address = f"127.0.0.1:{await broker.start()}"
    request, code = REQUESTS[name]
    reader, writer = await asyncio.open_connection(*address.split(":"))
    try:
        await channels.call(address, sent(RequestCode.SEND_MESSAGE_V2, b"first"), 60_000)
        frame = request.encode()
        tracemalloc.start()
        writer.write(frame)
        size = int.from_bytes(await reader.readexactly(4), "big")
        assert decode(await reader.readexactly(size)).code == code
        finished(broker.store.flush_index())
        _, peak = tracemalloc.get_traced_memory()
        assert peak < TIMES_MAX * len(frame), f"{peak / len(frame):.1f} times"
    finally:
        tracemalloc.stop()
        writer.close()
        await channels.close()
        await broker.kill()
