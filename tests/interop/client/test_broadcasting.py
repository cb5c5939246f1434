"""Broadcasting: every member gets everything, and keeps its offsets in a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop.client.target import QUIET_MS, Target, bodies, numbers
from tests.interop.taken import take

pytestmark = pytest.mark.interop


async def send(target: Target, topic: str, *sent: bytes) -> None:
    async with target.producer() as producer:
        for body in sent:
            await producer.send(topic, body)


def offsets_in(file: Path) -> list[str]:
    """The queues of this form are keys that are objects, which Python's JSON does not read."""
    return re.findall(r"\}\s*:\s*(\d+)", file.read_text())


async def test_every_member_gets_every_message(
    target: Target, wide: str, group: str, tmp_path: Path
) -> None:
    async with (
        target.broadcasting(group, wide, tmp_path, client_id="127.0.0.1@one") as one,
        target.broadcasting(group, wide, tmp_path, client_id="127.0.0.1@other") as other,
    ):
        await send(target, wide, *numbers(8))
        assert sorted(bodies(await take(one, 8))) == numbers(8)
        assert sorted(bodies(await take(other, 8))) == numbers(8)


async def test_a_member_goes_on_where_its_file_says(
    target: Target, wide: str, group: str, tmp_path: Path
) -> None:
    await send(target, wide, *numbers(8))
    async with target.broadcasting(group, wide, tmp_path) as member:
        assert sorted(bodies(await take(member, 8))) == numbers(8)
    await send(target, wide, *numbers(2, 8))
    async with target.broadcasting(group, wide, tmp_path) as member:
        assert sorted(map(int, bodies(await take(member, 2)))) == [8, 9]
        assert await member.get_many(timeout_ms=QUIET_MS) == []


async def test_a_member_with_another_id_begins_anew(
    target: Target, topic: str, group: str, tmp_path: Path
) -> None:
    await send(target, topic, *numbers(3))
    for client_id in ("127.0.0.1@one", "127.0.0.1@other"):
        async with target.broadcasting(group, topic, tmp_path, client_id=client_id) as member:
            assert bodies(await take(member, 3)) == numbers(3)


async def test_what_was_not_acknowledged_comes_again_after_a_restart(
    target: Target, topic: str, group: str, tmp_path: Path
) -> None:
    await send(target, topic, *numbers(3))
    async with target.broadcasting(group, topic, tmp_path) as member:
        await take(member, 1)
        await member.get()
    async with target.broadcasting(group, topic, tmp_path) as member:
        assert bodies(await take(member, 2)) == numbers(2, 1)


async def test_the_offsets_are_in_a_file_and_not_at_the_broker(
    target: Target, topic: str, group: str, tmp_path: Path
) -> None:
    await send(target, topic, *numbers(3))
    async with target.broadcasting(group, topic, tmp_path) as member:
        await take(member, 3)
    assert offsets_in(tmp_path / f"127.0.0.1@{group}" / group / "offsets.json") == ["3"]
    async with target.reader() as reader:
        (queue,) = await reader.queues(topic)
        assert await reader.committed(group, queue) in (None, 0)


async def test_a_failed_message_does_not_come_again(
    target: Target, topic: str, group: str, tmp_path: Path
) -> None:
    await send(target, topic, *numbers(2))
    async with target.broadcasting(group, topic, tmp_path) as member:
        (await member.get()).retry()
        assert bodies(await take(member, 1)) == [b"1"]
    async with target.broadcasting(group, topic, tmp_path) as member:
        assert await member.get_many(timeout_ms=QUIET_MS) == []


async def test_in_order_a_failed_message_comes_again(
    target: Target, topic: str, group: str, tmp_path: Path
) -> None:
    await send(target, topic, *numbers(2))
    async with target.broadcasting(group, topic, tmp_path, ordered=True) as member:
        (await member.get()).retry()
        again, last = await take(member, 2)
    assert (again.body, again.reconsume_times, last.body) == (b"0", 1, b"1")


async def test_tags_select_for_every_member(
    target: Target, topic: str, group: str, tmp_path: Path
) -> None:
    async with target.producer() as producer:
        for tag in "ABAB":
            await producer.send(topic, tag.encode(), tags=tag)
    for client_id in ("127.0.0.1@one", "127.0.0.1@other"):
        wanted = {topic: "B"}
        async with target.broadcasting(group, wanted, tmp_path, client_id=client_id) as member:
            assert bodies(await take(member, 2)) == [b"B", b"B"]
