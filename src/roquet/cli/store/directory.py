"""The options that say where a store is and how large its files are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from roquet.cli.output import end
from roquet.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from roquet.broker.config.broker import BrokerConfig
    from roquet.storetool.files import StoreFiles
    from roquet.storetool.read.index_files import Shape
    from roquet.storetool.rebuild import Plan

_SECONDS: Final = (
    1,
    5,
    10,
    30,
    *(minute * 60 for minute in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
_DELAY_LEVELS_MS: Final = tuple(seconds * 1000 for seconds in _SECONDS)
"""Apache's default of messageDelayLevel."""


def on_a_store(command: Callable[..., None]) -> Callable[..., None]:
    """Add the store's options to a command; errors end it with a line and exit code 2."""

    @wraps(command)
    def run(**arguments: Any) -> None:
        try:
            command(**arguments)
        except (StoreError, ConfigError) as error:
            end(str(error))
        except PermissionError as error:
            end(f"{error.filename}: {error.strerror}")

    decorators = (
        click.argument("folder", metavar="DIR", type=click.Path(path_type=Path)),
        click.option(
            "--commitlog",
            "logs",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="The folder of the log, if not DIR/commitlog; may be repeated.",
        ),
        click.option(
            "-c",
            "--config",
            "config",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Take paths, sizes and delay levels from this broker configuration.",
        ),
        click.option("--log-file-size", type=click.IntRange(1), help="Bytes of a file of the log."),
        click.option(
            "--queue-file-size", type=click.IntRange(20), help="Bytes of a consume queue's file."
        ),
        click.option("--index-slots", type=click.IntRange(1), help="Hash slots of an index file."),
        click.option("--index-entries", type=click.IntRange(2), help="Entries of an index file."),
    )
    decorated: Callable[..., None] = run
    for decorate in reversed(decorators):
        decorated = decorate(decorated)
    return decorated


class StoreLocation:
    """The store that a command line names: its files, and their sizes as far as they are known."""

    def __init__(
        self,
        folder: Path,
        logs: tuple[Path, ...],
        config: Path | None,
        log_file_size: int | None,
        queue_file_size: int | None,
        index_slots: int | None,
        index_entries: int | None,
    ) -> None:
        from roquet.storetool.files import find_files

        self.config = _read_config(config) if config is not None else None
        if self.config is not None:
            settings = self.config.store
            logs = logs or _log_folders(self.config, folder)
            log_file_size = log_file_size or settings.mapped_file_size_commit_log
            queue_file_size = queue_file_size or settings.consume_queue_file_size
            index_slots = index_slots or settings.max_hash_slot_num
            index_entries = index_entries or settings.max_index_num
        self._slots = index_slots
        self._entries = index_entries
        self.files: StoreFiles = find_files(folder, logs, log_file_size, queue_file_size)

    @property
    def shape(self) -> Shape | None:
        """Slots and entries of an index file, or None if they are not known.

        They come from the options or the configuration, or are Apache's default if a file has its
        size, or follow from the newest entry of a file.
        """
        from roquet.storetool.read.index_files import (
            ENTRIES_DEFAULT,
            SLOTS_DEFAULT,
            Shape,
            shape_of,
        )

        shape = Shape(self._slots or SLOTS_DEFAULT, self._entries or ENTRIES_DEFAULT)
        sizes = {path.stat().st_size for path in self.files.index}
        if not sizes or shape.file_size in sizes or (self._slots and self._entries):
            return shape
        return next(
            (found for path in self.files.index if (found := shape_of(path)) is not None), None
        )

    def plan(self, *, queues: bool, index: bool) -> Plan:
        """Return what to rebuild, and the sizes of the new files.

        :raises StoreError: the size of index files is needed and not known.
        """
        from roquet.storetool.files import QUEUE_FILE_SIZE
        from roquet.storetool.read.index_files import Shape
        from roquet.storetool.rebuild import Plan, ext_file_size

        size = self.files.queue_file_size or QUEUE_FILE_SIZE
        if index and self.shape is None:
            raise StoreError(
                "the numbers of slots and entries of an index file are not known: "
                "give -c broker.conf, or --index-slots and --index-entries"
            )
        levels = self.config.delay_levels.ms if self.config is not None else _DELAY_LEVELS_MS
        return Plan(
            queues, index, size, self.shape or Shape(), levels, ext_file_size(self.files.root)
        )


def end_without_topic(store: StoreLocation, topic: str) -> NoReturn:
    """End the command: the topic that its caller named is not there."""
    end(f"{store.files.root} has no topic {topic}; `roquet store ls` lists those that it has")


def _read_config(path: Path) -> BrokerConfig:
    from roquet.broker.config.broker import read_config
    from roquet.common.settings import read_file

    return read_config(read_file(path).pairs, str(path))[0]


def _log_folders(config: BrokerConfig, folder: Path) -> tuple[Path, ...]:
    """Return the log's folders: those of the configuration, or by default DIR/commitlog.

    Without storePathCommitLog the default is not taken from the configuration's storePathRootDir,
    because DIR may be another folder.
    """
    if config.store.store_path_commit_log is None:
        return (folder / "commitlog", *config.read_only_log_folders)
    return (*config.commit_log_folders, *config.read_only_log_folders)
