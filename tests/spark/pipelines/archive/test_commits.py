"""How far an archive is, by the commits to its table."""

from __future__ import annotations

import json

import pytest

from roquet.protocol.records.message import MessageQueue
from roquet.spark.pipelines.archive.commits import TableCommit, commit_text, progress_by
from roquet.spark.pipelines.archive.state import ArchiveError

A = MessageQueue("orders", "broker-a", 0)


def ours(version: int, at: int) -> TableCommit:
    return TableCommit(version, "WRITE", commit_text({A: at}, f"change {version}"))


def restored(version: int, to: str | None) -> TableCommit:
    return TableCommit(version, "RESTORE", parameters={"version": to, "timestamp": None})


@pytest.mark.parametrize(
    ("commits", "at"),
    [
        ([ours(1, 20), ours(0, 10)], 20),
        ([TableCommit(2, "OPTIMIZE"), TableCommit(1, "WRITE", "{'not': 'ours'}"), ours(0, 10)], 10),
        ([restored(3, "1"), ours(2, 30), ours(1, 20), ours(0, 10)], 20),
        ([ours(4, 25), restored(3, "1"), ours(2, 30), ours(1, 20)], 25),
        (
            [
                restored(5, "3"),
                ours(4, 40),
                restored(3, "0"),
                ours(2, 30),
                ours(1, 20),
                ours(0, 10),
            ],
            10,
        ),
    ],
)
def test_the_progress_is_that_of_what_the_table_comes_from(
    commits: list[TableCommit], at: int
) -> None:
    assert progress_by(commits) == {A: at}


def test_a_table_without_a_commit_of_ours_has_no_progress() -> None:
    assert (
        progress_by(
            [TableCommit(1, "OPTIMIZE"), TableCommit(0, "WRITE", json.dumps({"roquetArchived": 1}))]
        )
        is None
    )
    assert progress_by([]) is None


def test_what_cannot_be_followed_is_told() -> None:
    with pytest.raises(ArchiveError, match="version 1 of the table was restored by time"):
        progress_by([restored(1, None), ours(0, 10)])
    later = json.dumps(json.loads(commit_text({A: 1}, "x")) | {"roquetArchive": 2})
    with pytest.raises(
        ArchiveError, match="version 7 of the table has format 2, this roquet reads format 1"
    ):
        progress_by([TableCommit(7, "WRITE", later)])
