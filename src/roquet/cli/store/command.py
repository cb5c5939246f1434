"""`roquet store`: arguments and tables. The work is done by `roquet.storetool`.

Exit codes: 0: no findings, 1: findings, 2: the command could not do its work.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from roquet.cli.output import FINDINGS, json_option, progress_bar, show, table, time_text
from roquet.cli.store.directory import StoreLocation, end_without_topic, on_a_store
from roquet.cli.store.dump import dump

if TYPE_CHECKING:
    from roquet.storetool.check.check import Checked
    from roquet.storetool.listing import QueueListing, Stat

_FINDINGS_SHOWN: Final = 100


@click.group()
def store() -> None:
    """Check, list, print and rebuild the files of a store of roquet or of Apache's 4.9 broker.

    All commands but `rebuild` only read, and can be used while a broker is running.
    """


store.add_command(dump)


# check


@store.command(short_help="Compare log, queues, index and checkpoint.")
@on_a_store
@json_option
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=_FINDINGS_SHOWN,
    show_default=True,
    help="The largest number of findings to show.",
)
def check(as_json: bool, limit: int, **where: Any) -> None:
    """Compare log, consume queues, index and checkpoint, record by record.

    Exit codes: 0 if there are no findings, 1 if there are some, 2 if the store cannot be read.
    """
    from roquet.storetool.check.check import check as check_store

    store = StoreLocation(**where)
    with progress_bar("checking", store.files.log.end - store.files.log.start) as progress:
        checked = check_store(store.files, store.shape, progress)
    if as_json:
        click.echo(json.dumps(_checked_json(checked, limit)))
    else:
        _show_checked(checked, limit)
    if checked.findings.count:
        sys.exit(FINDINGS)


def _counts(checked: Checked) -> dict[str, int]:
    return {
        "files": checked.files,
        "logStart": checked.log_start,
        "logEnd": checked.log_end,
        "records": checked.records,
        "recordBytes": checked.record_bytes,
        "queues": checked.queues,
        "queueEntries": checked.entries,
        "indexFiles": checked.index_files,
        "keys": checked.keys,
        "findings": checked.findings.count,
    }


def _checked_json(checked: Checked, limit: int) -> dict[str, Any]:
    from roquet.storetool.check.findings import ADVICE

    findings = checked.findings
    return {
        "counts": _counts(checked),
        "byKind": {kind.value: count for kind, count in findings.by_kind.items()},
        "findings": [{**asdict(each), "kind": each.kind.value} for each in findings.kept[:limit]],
        "advice": {kind.value: ADVICE[kind] for kind in findings.by_kind},
        "remarks": findings.remarks,
    }


def _show_checked(checked: Checked, limit: int) -> None:
    from roquet.storetool.check.findings import ADVICE

    findings = checked.findings
    table(("what", "count"), ((name, f"{count:,}") for name, count in _counts(checked).items()))
    for each in findings.kept[:limit]:
        where = each.file if each.offset is None else f"{each.file}:{each.offset}"
        show(f"{each.kind.value}: {where}: {each.text}")
    if findings.count > limit:
        show(f"... and {findings.count - limit:,} more findings (--limit)")
    for kind in findings.by_kind:
        show(f"what to do ({kind.value}): {ADVICE[kind]}")
    for remark in findings.remarks[:limit]:
        show(f"remark: {remark}")
    show("sound" if not findings.count else f"{findings.count:,} findings")


# ls


@store.command(name="ls", short_help="List topics and queues.")
@on_a_store
@json_option
@click.option("--topic", "topics", multiple=True, help="List only this topic; may be repeated.")
def list_topics(as_json: bool, topics: tuple[str, ...], **where: Any) -> None:
    """List topics and queues: offsets, messages, bytes of files, first and last store time."""
    from roquet.storetool.listing import list_queues

    store = StoreLocation(**where)
    listed = [_listed_json(queue) for queue in list_queues(store.files, frozenset(topics))]
    for topic in topics:
        if all(row["topic"] != topic for row in listed):
            end_without_topic(store, topic)
    if as_json:
        click.echo(json.dumps(listed))
        return
    titles = (
        "topic",
        "queue",
        "min",
        "max",
        "messages",
        "file bytes",
        "first stored",
        "last stored",
    )
    table(
        titles,
        ([*map(str, [*row.values()][:6]), *map(time_text, [*row.values()][6:])] for row in listed),
    )


def _listed_json(queue: QueueListing) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "minOffset": queue.min_offset,
        "maxOffset": queue.max_offset,
        "messages": queue.messages,
        "fileBytes": queue.file_bytes,
        "firstStoreTimestamp": queue.first_ms,
        "lastStoreTimestamp": queue.last_ms,
    }


# stat


@store.command(short_help="Show sizes, counts and state.")
@on_a_store
@json_option
def stat(as_json: bool, **where: Any) -> None:
    """Show how large a store is, whether a broker runs on it, and whether it stopped cleanly."""
    from roquet.storetool.listing import stat as stat_of

    found = stat_of(StoreLocation(**where).files)
    fields = _stat_json(found)
    if as_json:
        click.echo(json.dumps(fields))
        return
    table(("what", "value"), ((name, _stat_text(name, value)) for name, value in fields.items()))


def _stat_json(found: Stat) -> dict[str, Any]:
    return {
        "logFiles": found.log_files,
        "logFileSize": found.log_file_size,
        "logStart": found.log_start,
        "logEnd": found.log_end,
        "topics": found.topics,
        "queues": found.queues,
        "queueFiles": found.queue_files,
        "queueFileSize": found.queue_file_size,
        "messages": found.messages,
        "indexFiles": found.index_files,
        "keys": found.keys,
        "diskUsed": found.disk_used,
        "oldestTimestamp": found.oldest_ms,
        "newestTimestamp": found.newest_ms,
        "brokerRuns": found.is_locked,
        "stoppedCleanly": None if found.is_locked else not found.has_abort,
        "checkpointLogTimestamp": found.log_ms,
        "checkpointQueuesTimestamp": found.queues_ms,
        "checkpointIndexTimestamp": found.index_ms,
        "mark": None
        if found.mark is None
        else {"position": found.mark.position, "isValid": found.is_mark_valid},
    }


def _stat_text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return f"{value['position']:,}" + ("" if value["isValid"] else " (does not fit this log)")
    return time_text(value) if name.endswith("Timestamp") else f"{value:,}"


# rebuild


@store.command(short_help="Rebuild queues and index from the log.")
@on_a_store
@click.option("--queues", "only_queues", is_flag=True, help="Rebuild the consume queues only.")
@click.option("--index", "only_index", is_flag=True, help="Rebuild the index only.")
def rebuild(only_queues: bool, only_index: bool, **where: Any) -> None:
    """Rebuild consume queues and index from the log; with --queues or --index only one of them.

    The broker must be stopped. Queue offsets do not change. If the rebuild is interrupted, run it
    again, or start the broker: its recovery does the same.
    """
    from roquet.storetool.rebuild import rebuild as rebuild_store

    store = StoreLocation(**where)
    both = only_queues == only_index
    plan = store.plan(queues=both or only_queues, index=both or only_index)
    log = store.files.log
    with progress_bar("rebuilding", 2 * (log.end - log.start)) as progress:
        rebuilt = rebuild_store(store.files, plan, progress)
    show(f"{rebuilt.records:,} records dispatched")
    if rebuilt.damaged:
        show(
            f"{rebuilt.damaged:,} records left out because their bodies are damaged: "
            "`roquet store check` lists them"
        )
