"""Which stores are read, and how their logs are split."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from roquet.errors import OptionError, StoreError
from roquet.protocol.records.layout import MAGIC
from roquet.spark._storefiles.log_end import log_end
from roquet.storage.queues.consume_queue import ENTRY_SIZE
from tests.spark.store_rows import COUNT, TINY, bodies, messages, planned, rows
from tests.storetool.stores import (
    LOG_FILE,
    START_MS,
    Broker,
    file_of,
    files_of,
    filled,
    overwrite,
)


def test_parts_are_of_about_the_size_asked_for_and_meet_at_records(
    tmp_path: Path, places: list[int]
) -> None:
    parts = planned(tmp_path, bytesPerPartition="2000")

    assert len(parts) == round((places[-1] - places[0]) / 2000)
    assert {part.start for part in parts} <= set(places)
    assert all(before.end == after.start for before, after in pairwise(parts))
    assert max(part.end - part.start for part in parts) < 2400


def test_a_body_that_looks_like_a_record_is_no_place_to_cut(tmp_path: Path) -> None:
    broker = Broker(tmp_path, commit_log_file_size=1 << 20)
    sent = []
    for number in range(40):
        at = broker.store.log.end
        fake = bytearray(b"".join(_fake(at + 88 + index * 91, number) for index in range(20)))
        sent.append(bytes(fake))
        broker.put(sent[-1])
    broker.stop()

    parts = planned(tmp_path, bytesPerPartition="2000")

    assert len(parts) > 20
    assert bodies(tmp_path, bytesPerPartition="2000") == sent


def _fake(at: int, number: int) -> bytes:
    """The smallest sound record, of topic T and queue 0, at a physical offset."""
    head = (91).to_bytes(4, "big") + MAGIC.to_bytes(4, "big") + bytes(12)
    return (head + number.to_bytes(8, "big") + at.to_bytes(8, "big")).ljust(91, b"\0")


@pytest.mark.parametrize("each", [TINY, "1000000"])
def test_a_store_without_queues_is_cut_by_what_its_records_say(
    tmp_path: Path, places: list[int], each: str
) -> None:
    shutil.rmtree(tmp_path / "consumequeue")

    assert bodies(tmp_path, bytesPerPartition=each) == messages()


def test_parts_of_other_times_are_not_even_planned(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for number in range(100):
        broker.now_ms += 3_600_000
        broker.put(b"%d" % number)
    broker.stop()
    since, until = START_MS + 40 * 3_600_001, START_MS + 50 * 3_600_001
    times = {"startingTimestamp": str(since), "endingTimestamp": str(until)}

    assert bodies(tmp_path, bytesPerPartition="600", **times) == [
        b"%d" % number for number in range(39, 49)
    ]
    assert len(planned(tmp_path, bytesPerPartition="600", **times)) < 6
    assert len(planned(tmp_path, bytesPerPartition="600")) > 12


def test_no_part_is_left_out_where_a_clock_was_set_back(tmp_path: Path, places: list[int]) -> None:
    for number in range(20):  # of all records, whose bodies do not say so
        name, index = file_of(tmp_path, places[number])
        overwrite(tmp_path / name, index + 56, (START_MS + 10**9 + number).to_bytes(8, "big"))

    found = bodies(tmp_path, bytesPerPartition=TINY, endingTimestamp=str(START_MS + 10**8))

    assert found == messages()[20:]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingTimestamp": str(START_MS + COUNT)}, "T@{name}:0 has no message stored at"),
        (
            {
                "subscribe": "T",
                "startingOffsetsByTimestamp": f'{{"T":{{"{{name}}":{{"1":{START_MS + COUNT + 1}}}}}}}',
            },
            "T@{name}:1 has no message stored at",
        ),
    ],
)
def test_a_queue_that_ends_before_the_time_has_no_rows_or_is_told_of(
    tmp_path: Path, places: list[int], given: dict[str, str], words: str
) -> None:
    given = {name: value.replace("{name}", tmp_path.name) for name, value in given.items()}

    assert len(bodies(tmp_path, **given)) == (1 if "startingTimestamp" in given else COUNT // 2)
    with pytest.raises(OptionError, match=words.format(name=tmp_path.name)):
        planned(tmp_path, startingOffsetsByTimestampStrategy="error", **given)
    assert planned(
        tmp_path,
        startingOffsetsByTimestampStrategy="error",
        startingTimestamp=str(START_MS + COUNT - 1),
    )


def test_a_message_that_is_in_no_queue_yet_may_be_of_the_time(
    tmp_path: Path, places: list[int]
) -> None:
    last = sorted((tmp_path / "consumequeue/T/1").iterdir())[-1]
    data = last.read_bytes()
    used = max(at for at in range(0, len(data), ENTRY_SIZE) if any(data[at : at + ENTRY_SIZE]))
    overwrite(last, used, bytes(ENTRY_SIZE))
    since = {"subscribe": "T", "startingOffsetsByTimestampStrategy": "error"}
    since["startingOffsetsByTimestamp"] = (
        f'{{"T":{{"{tmp_path.name}":{{"1":{START_MS + COUNT}}}}}}}'
    )

    assert bodies(tmp_path, **since)[-1] == messages()[-1]


def test_without_queues_nobody_knows_which_of_them_end_early(
    tmp_path: Path, places: list[int]
) -> None:
    shutil.rmtree(tmp_path / "consumequeue")
    since = {"startingTimestamp": str(START_MS + COUNT)}

    assert bodies(tmp_path, **since) == messages()[-1:]
    with pytest.raises(OptionError, match="has no queues, so only latest is possible"):
        planned(tmp_path, startingOffsetsByTimestampStrategy="error", **since)


def test_two_stores_are_read_as_one_and_rows_tell_them_apart(tmp_path: Path) -> None:
    filled(tmp_path / "broker-a", 5)
    filled(tmp_path / "broker-b" / "store", 7)

    found = rows(tmp_path / "broker-b" / "store", tmp_path / "broker-a")

    assert [row["brokerName"] for row in found] == ["broker-b"] * 7 + ["broker-a"] * 5


def test_wildcards_find_stores_and_names_can_be_given(tmp_path: Path) -> None:
    for name in "ab":
        filled(tmp_path / name, 2)

    assert [row["brokerName"] for row in rows(tmp_path / "*", brokerName="x,y")] == [
        "x",
        "x",
        "y",
        "y",
    ]
    assert {row["brokerName"] for row in rows(tmp_path / "[ab]", brokerName="x")} == {"x"}
    assert len(rows(tmp_path / "*", tmp_path / "a")) == 4, (
        "a store that is named twice is read once"
    )


def test_the_log_may_lie_in_several_other_folders(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    filled(tmp_path / "store", COUNT, commit_log_folders=folders)

    assert all(list(folder.iterdir()) for folder in folders)
    assert bodies(tmp_path / "store", commitLog=",".join(map(str, folders))) == messages()
    with pytest.raises(
        StoreError, match="has queues but no commit log: name its folders in option commitLog"
    ):
        planned(tmp_path / "store")


def test_a_store_without_a_message_has_no_rows(tmp_path: Path) -> None:
    Broker(tmp_path).stop()

    assert rows(tmp_path) == []


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"path": "{root}/nowhere"}, StoreError, "nowhere is no directory on this machine"),
        ({"path": "{root}/x*"}, StoreError, "no directory matches"),
        (
            {"path": "{root}/*", "commitLog": "{root}/a"},
            OptionError,
            "commitLog is for one store, path has 2",
        ),
        ({"path": "{root}/*", "brokerName": "x,y,z"}, OptionError, "3 names for 2 stores"),
        ({"path": "{root}/a/consumequeue"}, StoreError, "is not a store"),
    ],
)
def test_stores_that_are_not_there_are_told_of(
    tmp_path: Path, given: dict[str, str], error: type[Exception], words: str
) -> None:
    for name in "ab":
        filled(tmp_path / name, 2)

    with pytest.raises(error, match=words):
        planned(**{name: value.format(root=tmp_path) for name, value in given.items()})


def test_the_log_begins_and_ends_with_its_parts(tmp_path: Path, places: list[int]) -> None:
    for each in ("1", TINY, "1000000"):
        parts = planned(tmp_path, bytesPerPartition=each)

        end, _ = log_end(files_of(tmp_path))
        assert (parts[0].start, parts[-1].end) == (places[0], end)
        assert all(before.end == after.start for before, after in pairwise(parts))
    assert len(planned(tmp_path, bytesPerPartition="1")) == COUNT, "a record is not split"


def test_a_part_has_the_files_that_it_reads_and_no_others(
    tmp_path: Path, places: list[int]
) -> None:
    parts = planned(tmp_path, bytesPerPartition=TINY)

    for part in parts:
        starts = [file.start for file in part.log.files]
        assert starts == list(range(part.start - part.start % LOG_FILE, part.end, LOG_FILE)), (
            "and the first file is the one of the part's first byte"
        )
    assert len({file.start for part in parts for file in part.log.files}) > 2


def test_a_part_that_damage_follows_has_the_damage(tmp_path: Path, places: list[int]) -> None:
    name, index = file_of(tmp_path, places[-3])
    overwrite(tmp_path / name, index, bytes(LOG_FILE - index))

    *others, last = planned(tmp_path, bytesPerPartition=TINY)

    assert [part.damages for part in others] == [()] * len(others)
    (damage,) = last.damages
    assert (last.end, damage.start) == (places[-3], places[-3])
    assert damage.end > places[-1]


def test_damage_is_told_of_whatever_time_is_asked_for(tmp_path: Path, places: list[int]) -> None:
    name, index = file_of(tmp_path, places[-3])
    overwrite(tmp_path / name, index, bytes(LOG_FILE - index))

    (part,) = planned(tmp_path, endingTimestamp="1")

    assert (part.start, part.end, len(part.damages)) == (places[-3], places[-3], 1)


def test_a_store_is_named_after_its_folder_or_the_one_above_it(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b/store"):
        filled(tmp_path / name, 1)

    names = [
        part.broker_name for part in planned(tmp_path / "broker-a", tmp_path / "broker-b/store")
    ]

    assert names == ["broker-a", "broker-b"]


def test_a_folder_may_have_letters_of_wildcards(tmp_path: Path) -> None:
    filled(tmp_path / "a[b]", 2)

    assert bodies(tmp_path / "a[b]") == messages(2)
