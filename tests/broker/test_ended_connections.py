"""What a broker knows of a connection goes with it: nobody looks for cycles of it
(`roquet.common.memory`).
"""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Final
from weakref import ref

from roquet.broker.config.broker import read_config
from roquet.broker.server import Broker
from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection

SEND: Final = {
    "a": "P",
    "b": "T",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1",
    "h": "0",
    "i": "",
    "j": "0",
}
PULL: Final = PullHeader("g", "T", 0, 0, 32, 2 | 4, 0, 15_000, "*", 1, "TAG").write()
SETTINGS: Final = {
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "listenPort": "0",
    "mapedFileSizeCommitLog": "65536",
    "maxHashSlotNum": "20",
    "maxIndexNum": "40",
}


def connections() -> list[Connection]:
    return [each for each in gc.get_objects() if isinstance(each, Connection)]


async def ended(broker: Broker) -> int:
    """How many connections are left of a client that sent, pulled, asked and went."""
    address = f"127.0.0.1:{await broker.start()}"
    gc.collect()
    others = {id(each) for each in connections()}
    gc.disable()
    try:
        channels = Channels()
        for code, fields in [
            (RequestCode.SEND_MESSAGE_V2, SEND),
            (RequestCode.PULL_MESSAGE, PULL),
        ] * 20:
            assert (await channels.call(address, Command(code, dict(fields), b"x"), 3000)).code == 0
        await channels.call(address, Command(RequestCode.GET_ALL_TOPIC_CONFIG), 3000)
        seen = [ref(each) for each in connections() if id(each) not in others]
        await channels.close()
        del channels
        for _ in range(10):
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            while broker.parts.peers.connections:
                await asyncio.sleep(0.01)
        assert len(seen) == 2, "the client's and the broker's"
        return sum(each() is not None for each in seen)
    finally:
        gc.enable()
        await broker.stop()


def test_nothing_is_left_of_a_connection_that_ended(tmp_path: Path) -> None:
    pairs = [*SETTINGS.items(), ("storePathRootDir", str(tmp_path))]
    assert asyncio.run(ended(Broker(read_config(pairs, environment={})[0]))) == 0
