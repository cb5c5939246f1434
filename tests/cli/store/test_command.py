"""`roquet store`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from roquet.cli.main import main
from roquet.storage.files.disk import RealDisk
from tests.storetool.stores import (
    LOG_FILE,
    QUEUE_FILE,
    SHAPE,
    START_MS,
    Broker,
    file_of,
    filled,
    flip,
    snapshot,
)

INDEX = ("--index-slots", str(SHAPE.slots), "--index-entries", str(SHAPE.entries))


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["store", *map(str, words)])


def printed(result: Result) -> Any:
    return json.loads(result.stdout)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    filled(tmp_path, 40)
    return tmp_path


def damage(root: Path, count: int = 1) -> None:
    for number in range(count):
        flip(root / "consumequeue" / "T" / "0" / f"{0:020d}", 20 * number + 19)


def test_a_sound_store_ends_with_0(root: Path) -> None:
    result = run("check", root, *INDEX)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "sound"
    assert "records" in result.stdout


def test_findings_end_with_1_and_say_where_and_what_to_do(root: Path) -> None:
    damage(root)

    result = run("check", root, *INDEX)

    assert result.exit_code == 1
    assert (
        f"entry: consumequeue/T/0/{0:020d}:0: the entry of queue offset 0 of T 0" in result.stdout
    )
    assert "what to do (entry): stop the broker; `roquet store rebuild --queues`" in result.stdout
    assert result.stdout.splitlines()[-1] == "1 findings"


def test_findings_are_counted_beyond_the_limit(root: Path) -> None:
    damage(root, 5)

    result = run("check", root, *INDEX, "--limit", 2)

    assert result.stdout.count("\nentry: ") == 2
    assert "... and 3 more findings" in result.stdout


def test_a_check_as_json(root: Path) -> None:
    places = [each["offset"] for each in printed(run("check", root, *INDEX, "--json"))["findings"]]
    assert places == []
    name, index = file_of(root, 0)
    flip(root / name, index + 89)

    result = run("check", root, *INDEX, "--json")

    assert result.exit_code == 1
    found = printed(result)
    assert found["counts"]["records"] == 40
    assert found["counts"]["findings"] == 1
    assert [(each["kind"], each["file"], each["offset"]) for each in found["findings"]] == [
        ("body", name, index)
    ]
    assert "checksum" in found["findings"][0]["text"]
    assert found["advice"].keys() == {"body"}


@pytest.mark.parametrize("command", ["check", "ls", "stat", "dump", "rebuild"])
def test_what_is_no_store_ends_with_2(tmp_path: Path, command: str) -> None:
    result = run(command, tmp_path)

    assert result.exit_code == 2
    assert "is not a store" in result.stderr
    assert result.stdout == ""


def test_a_wrong_configuration_ends_with_2(root: Path) -> None:
    result = run("check", root, "-c", root / "none.conf")

    assert result.exit_code == 2
    assert "none.conf" in result.stderr


def test_sizes_may_come_from_the_broker_s_configuration(root: Path) -> None:
    path = root.parent / f"{root.name}.conf"
    path.write_text(
        f"mappedFileSizeCommitLog={LOG_FILE}\nmappedFileSizeConsumeQueue={QUEUE_FILE}\n"
        f"maxHashSlotNum={SHAPE.slots}\nmaxIndexNum={SHAPE.entries}\n"
    )

    result = run("check", root, "-c", path, "--json")

    assert result.exit_code == 0
    assert printed(result)["counts"]["keys"] == 80


def test_an_index_file_tells_its_slots_and_entries(root: Path) -> None:
    result = run("check", root, "--json")

    assert result.exit_code == 0
    assert printed(result)["counts"]["keys"] == 80


def test_an_index_that_does_not_tell_them_is_said_not_to_be_checked(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(b"the only key is that of physical offset 0", KEYS="k")
    broker.stop()

    result = run("check", tmp_path)

    assert result.exit_code == 0
    assert "remark: the index was not checked" in result.stdout


def test_a_log_elsewhere(tmp_path: Path) -> None:
    logs = [tmp_path / "a", tmp_path / "b"]
    filled(tmp_path / "s", 60, commit_log_folders=logs)

    result = run(
        "check", tmp_path / "s", "--commitlog", logs[0], "--commitlog", logs[1], *INDEX, "--json"
    )

    assert result.exit_code == 0
    assert printed(result)["counts"]["records"] == 60


def test_queues_are_listed(root: Path) -> None:
    lines = run("ls", root).stdout.splitlines()

    assert lines[0].split()[:5] == ["topic", "queue", "min", "max", "messages"]
    assert lines[1].split()[:6] == ["T", "0", "0", "20", "20", str(2 * QUEUE_FILE)]
    assert printed(run("ls", root, "--json", "--topic", "T"))[1] == {
        "topic": "T",
        "queueId": 1,
        "minOffset": 0,
        "maxOffset": 20,
        "messages": 20,
        "fileBytes": 2 * QUEUE_FILE,
        "firstStoreTimestamp": START_MS + 2,
        "lastStoreTimestamp": START_MS + 40,
    }


def test_a_store_in_numbers(root: Path) -> None:
    found = printed(run("stat", root, "--json"))

    assert (found["messages"], found["keys"], found["brokerRuns"], found["stoppedCleanly"]) == (
        40,
        80,
        False,
        True,
    )
    assert found["mark"] == {"position": found["logEnd"], "isValid": True}
    assert "messages" in run("stat", root).stdout


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ([], 40),
        (["--topic", "T", "--queue", "1"], 20),
        (["--topic", "T", "--queue", "1", "--offset", "5"], 15),
        (["--topic", "T", "--queue", "1", "--offset", "5:7"], 2),
        (["--key", "T-00000007"], 1),
        (["--since", "2023-11-14T22:13:20.031"], 10),
        (["--since", "2023-11-15T00:13:20.031+02:00", "--until", START_MS + 33], 2),
        (["--limit", 3], 3),
    ],
)
def test_records_are_dumped_as_lines(root: Path, words: list[object], count: int) -> None:
    result = run("dump", root, *words)

    assert (result.exit_code, result.stderr) == (0, "")
    assert len([json.loads(line) for line in result.stdout.splitlines()]) == count


@pytest.mark.parametrize("words", [("ls",), ("ls", "--topic", "T"), ("dump",)])
def test_a_topic_that_is_not_there_is_named(root: Path, words: tuple[str, ...]) -> None:
    command, *others = words
    result = run(command, root, *others, "--topic", "nope")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"roquet: {root} has no topic nope; `roquet store ls` lists those that it has\n"
    )


def test_a_topic_without_wanted_records_is_no_mistake(root: Path) -> None:
    result = run("dump", root, "--topic", "T", "--key", "nobody-has-it")

    assert (result.exit_code, result.output) == (0, "")


def test_a_limit_below_0_is_refused(root: Path) -> None:
    result = run("check", root, "--limit", "-3")

    assert result.exit_code == 2
    assert "'--limit': -3 is not in the range x>=0" in result.stderr


def test_a_dump_goes_to_a_file(root: Path) -> None:
    path = root.parent / f"{root.name}.jsonl"

    result = run("dump", root, "-o", path, "--no-body")

    assert (result.exit_code, result.stdout) == (0, "")
    assert len(path.read_text(encoding="utf-8").splitlines()) == 40


@pytest.mark.parametrize(
    "words",
    [
        ("--offset", "x"),
        ("--offset", "3:y"),
        ("--offset", "3:²"),
        ("--offset", "9" * 5000),
        ("--since", "yesterday"),
    ],
)
def test_a_wrong_option_of_a_dump_is_named(root: Path, words: tuple[str, str]) -> None:
    result = run("dump", root, *words)

    assert result.exit_code == 2
    assert words[0] in result.stderr


def test_what_a_dump_cannot_read_is_said_and_ends_with_1(root: Path) -> None:
    flip(root / "commitlog" / f"{0:020d}", 5)

    result = run("dump", root)

    assert result.exit_code == 1
    assert "roquet: skipped: physical offsets 0 to" in result.stderr


def test_queues_and_index_are_rebuilt(root: Path) -> None:
    shutil.rmtree(root / "index")
    damage(root)
    assert run("check", root, *INDEX).exit_code == 1

    result = run("rebuild", root, *INDEX)

    assert (result.exit_code, result.stdout) == (0, "40 records dispatched\n")
    assert run("check", root, *INDEX).exit_code == 0


def test_only_what_is_asked_for_is_rebuilt(root: Path) -> None:
    before = snapshot(root / "index")

    assert run("rebuild", root, "--queues").exit_code == 0

    assert snapshot(root / "index") == before


def test_a_rebuild_needs_to_know_how_large_the_index_is(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(b"the only key is that of physical offset 0", KEYS="k")
    broker.stop()
    before = snapshot(tmp_path)

    result = run("rebuild", tmp_path, "--index")

    assert result.exit_code == 2
    assert "--index-slots" in result.stderr
    assert snapshot(tmp_path) == before


def test_a_rebuild_refuses_while_a_broker_runs(root: Path) -> None:
    held = RealDisk().lock(root / "lock")
    before = snapshot(root)

    result = run("rebuild", root, *INDEX)

    held.release()
    assert result.exit_code == 2
    assert "in use by another broker" in result.stderr
    assert snapshot(root) == before


def test_a_killed_broker_s_store_says_so(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.fill(4)
    broker.die()

    assert printed(run("stat", tmp_path, "--json"))["stoppedCleanly"] is False


@pytest.mark.parametrize("command", ["check", "ls", "stat", "dump"])
def test_a_topic_s_name_does_nothing_to_a_terminal(tmp_path: Path, command: str) -> None:
    """A sender whose broker checks no names, or a folder that somebody made, may have brought
    any.
    """
    broker = Broker(tmp_path)
    broker.put(b"\x1b\xc2\x9b", "T\x1b[2J\x9b", TAGS="\u202e")
    broker.stop()
    flip(tmp_path / "consumequeue" / "T\x1b[2J\x9b" / "0" / f"{0:020d}", 19)

    result = run(command, tmp_path)

    assert command == "stat" or "T" in result.stdout
    assert all(
        character == "\n" or character.isprintable() for character in result.stdout + result.stderr
    )
