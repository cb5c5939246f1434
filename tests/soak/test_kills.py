"""Our broker, killed dozens of times under load on one store; Apache's client, and its broker, look
at what is left.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.integration.kills import (
    SETTINGS,
    TOPIC,
    Found,
    assert_files_are_whole,
    found_by_apache,
    is_routed,
    kill_again_and_again,
    read_by_us,
)
from tests.interop.apache import ApacheBroker, Version, require_java, run_driver, wait_until
from tests.interop.roquet_cluster import BROKER, CLUSTER, RoquetBroker, RoquetNameServer

pytestmark = [pytest.mark.process, pytest.mark.interop]

SECONDS = 300


async def test_acknowledged_messages_are_where_they_were_after_dozens_of_kills(
    soak_seed: int, kills: int, tmp_path: Path
) -> None:
    require_java()
    with RoquetNameServer() as names:
        with RoquetBroker(
            names.address, store_dir=tmp_path / "store", properties=SETTINGS
        ) as broker:
            broker.kill()
            load = await kill_again_and_again(broker, soak_seed, kills)
            assert_files_are_whole(load, broker.store_dir)
            broker.start()
            wait_until(lambda: is_routed(broker), "a route for the topic")
            ours = await read_by_us(names.address)
            load.assert_kept(ours)
            assert by_place(read_by_apache(names.address, "G-ours", len(ours))) == by_place(ours)
            broker.kill()
        say(f"{kills} kills, {len(load.acknowledged)} messages acknowledged, {len(ours)} stored")

        apaches = ApacheBroker(
            names.address, name=BROKER, cluster=CLUSTER, store_dir=broker.store_dir, port=broker.port,
            properties=SETTINGS,
        )  # fmt: skip
        with apaches:
            assert by_place(read_by_apache(names.address, "G-apaches", len(ours))) == by_place(ours)


def read_by_apache(name_server: str, group: str, count: int) -> list[Found]:
    """Every message of the topic, by Apache's consumer."""
    words = ("consume", name_server, TOPIC, group, count, SECONDS, "--linger", 1000)
    return [
        found_by_apache(line)
        for line in run_driver(Version.V4, *words, timeout_s=SECONDS + 30).check()
    ]


def by_place(found: list[Found]) -> list[Found]:
    return sorted(found, key=lambda each: (each.queue_id, each.queue_offset))


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
