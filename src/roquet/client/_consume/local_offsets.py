"""The offsets of a broadcasting member, in a local file in the form of Apache's client.

See docs/protocol/consuming.md#broadcasting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from roquet.client._net.tasks import attempt
from roquet.common.files import (
    is_file_name,
    not_in_file_names,
    read_with_backup,
    replace_with_backup,
)
from roquet.common.runtime import Runtime
from roquet.errors import ConfigError, StoreError
from roquet.protocol.bodies.tables import parse, queue_key, queue_of_key
from roquet.protocol.json.dialect import ObjectKeys, dump_indented
from roquet.protocol.json.numbers import as_int64
from roquet.protocol.records.message import MessageQueue

log = logging.getLogger(__name__)

FILE: Final = "offsets.json"


class LocalOffsets:
    """The offset store of a broadcasting member.

    The offsets are in memory; `persist` writes them to `client id/group/offsets.json` in `folder`,
    and keeps the former file as `.bak`.

    Invariant: the file has the offsets of the last `persist`. If the machine crashes during one, it
    may have those of the one before. Offsets only grow, unless `reset` or `forget` is called.
    There is at most one write at a time.

    :param folder: the folder of all clients; None means that of Apache's client.
    :raises ConfigError: there is no client id, or it cannot be the name of a folder.
    """

    def __init__(
        self, folder: str | Path | None, client_id: str | None, group: str, runtime: Runtime
    ) -> None:
        if client_id is None:
            raise ConfigError(
                "broadcast=True needs client_id: one per process, the same after each restart"
            )
        if not is_file_name(client_id):
            raise ConfigError(
                f"client_id {client_id!r} cannot be the name of a folder: "
                f"use a text without any of {not_in_file_names()!r}, other than . and .."
            )
        self._folder = Path(folder or Path.home() / ".rocketmq_offsets") / client_id / group
        self._runtime = runtime
        self._offsets: dict[MessageQueue, int] = {}
        self._may_fall: set[MessageQueue] = set()
        self._has_changes = False
        self._writing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Read the file, or its backup if the file cannot be read.

        :raises StoreError: neither can be read, or the backup cannot replace the file.
        """
        try:
            self._offsets = await self._runtime.blocking(partial(_read, self._folder))
        except OSError as error:
            raise StoreError(
                f"{self._folder / FILE} cannot be restored from its backup: {error}"
            ) from error

    async def load(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    async def is_stored(self, queue: MessageQueue) -> bool:
        return queue in self._offsets

    async def commit(self, queue: MessageQueue, current_offset: Callable[[], int]) -> None:
        offset = current_offset()
        stored = self._offsets.get(queue, -1)
        if offset > stored or (offset < stored and queue in self._may_fall):
            self._offsets[queue] = offset
            self._has_changes = True
        self._may_fall.discard(queue)

    async def reset(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset and try to write it. If that fails, the next `persist` writes it."""
        self._offsets[queue] = offset
        self._has_changes = True
        await attempt(self.persist(), "saving offsets")

    def distrust(self, queue: MessageQueue) -> None:
        """Do nothing: no pull stores an offset in the file."""

    def last_stored(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Let the next `commit` store even a lower offset. Nothing is cached here."""
        self._may_fall.add(queue)

    async def persist(self) -> None:
        """Write all offsets to the file. A write that has begun is finished even on cancellation.

        :raises StoreError: the file cannot be written; the next `persist` tries again.
        """
        while self._writing is not None or self._has_changes:
            if self._writing is None:
                self._writing = asyncio.get_running_loop().create_task(self._write())
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        self._has_changes = False
        try:
            data = dump_indented(_to_json(self._offsets))
            await self._runtime.blocking(partial(replace_with_backup, self._folder / FILE, data))
        except OSError as error:
            self._has_changes = True
            raise StoreError(
                f"{self._folder / FILE} cannot be written, the next save tries again: {error}"
            ) from error
        finally:
            self._writing = None


def _to_json(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    return {
        "offsetTable": ObjectKeys(
            {queue_key(queue): offset for queue, offset in sorted(offsets.items())}
        )
    }


def _from_json(json: Mapping[str, Any]) -> dict[MessageQueue, int]:
    return {queue_of_key(key): as_int64(offset) for key, offset in json["offsetTable"].items()}


def _read(folder: Path) -> dict[MessageQueue, int]:
    """Read the offsets; if the file cannot be read, restore it from the backup."""
    offsets, problems = read_with_backup(folder / FILE, lambda data: parse(data, _from_json))
    for path, error in problems:
        log.warning("offset file cannot be read: path=%s error=%s", path, error)
    if offsets is None and problems:
        path, error = problems[-1]
        raise StoreError(f"{path} cannot be read: {error}; repair it, or delete it to start anew")
    return offsets or {}
