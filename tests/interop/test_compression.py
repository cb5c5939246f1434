"""Compressed bodies of each kind, between our clients and both of Apache's releases."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from roquet import Producer, PullConsumer
from roquet.dev import Cluster
from roquet.protocol.records.compression import CompressionName
from tests.interop.apache import PATIENT, Version, require_java, run_driver
from tests.interop.taken import CONSUME_SECONDS, all_messages

pytestmark = pytest.mark.interop

SIZE = 100_000
BITS = {"zlib": {0x1, 0x301}, "lz4": {0x101}, "zstd": {0x201}}
"""The sysFlag bits of each kind; Java says zlib in another way than we."""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    require_java()
    async with Cluster() as running:
        yield running


@pytest.fixture(params=["zlib", "lz4", "zstd"])
def kind(request: pytest.FixtureRequest) -> CompressionName:
    if request.param == "lz4":
        pytest.importorskip("lz4.frame")
    elif request.param == "zstd" and sys.version_info < (3, 14):
        pytest.importorskip("backports.zstd")
    name: CompressionName = request.param
    return name


@pytest.mark.parametrize("version", Version)
async def test_we_read_what_java_compresses(
    cluster: Cluster, version: Version, kind: CompressionName
) -> None:
    topic = f"java-{kind}-{version[0]}"
    done = await asyncio.to_thread(
        run_driver,
        version,
        *("produce", cluster.name_server, topic, 3, *PATIENT, "--size", SIZE),
        java_options=[f"-Drocketmq.message.compressType={kind.upper()}"],
    )
    done.check()

    async with PullConsumer(cluster.name_server) as reader:
        found = [message async for message in all_messages(reader, topic)]
    assert [len(message.body) for message in found] == [SIZE] * 3
    for message in found:
        assert message.sys_flag & 0x701 in BITS[kind]
        assert message.body.startswith(b"message-")
        assert len(message.stored_body) < SIZE


@pytest.mark.parametrize("version", Version)
async def test_java_reads_what_we_compress(
    cluster: Cluster, version: Version, kind: CompressionName
) -> None:
    topic = f"ours-{kind}-{version[0]}"
    bodies = ["plain", "large " * (SIZE // 6), "x" * (4_000_000)]
    async with Producer(cluster.name_server, "P", compression=kind) as producer:
        for body in bodies:
            await producer.send(topic, body.encode())

    done = await asyncio.to_thread(
        run_driver,
        version,
        *("consume", cluster.name_server, topic, f"G-{topic}", 3, CONSUME_SECONDS),
    )
    assert sorted(line["body"] for line in done.check()) == sorted(bodies)
