"""Which store a command is about, and how large its files are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
"""Apache's defaults, where no configuration says something else."""


def on_a_store(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments that say where a store is and how large its files are; what cannot be done ends with code 2."""

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
        click.option("--commitlog", "logs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
                     help="Where files of the log are, if not in DIR/commitlog; may be repeated."),
        click.option("-c", "--config", "config", type=click.Path(path_type=Path), metavar="FILE",
                     help="The broker's configuration: what it says of paths and sizes counts."),
        click.option("--log-file-size", type=click.IntRange(1), help="Bytes of a file of the log."),
        click.option("--queue-file-size", type=click.IntRange(20), help="Bytes of a file of a consume queue."),
        click.option("--index-slots", type=click.IntRange(1), help="Hash slots of an index file."),
        click.option("--index-entries", type=click.IntRange(2), help="Entries of an index file."),
    )  # fmt: skip
    decorated: Callable[..., None] = run
    for decorate in reversed(decorators):
        decorated = decorate(decorated)
    return decorated


class Place:
    """The store that a command line names: its files and what is known of their sizes."""

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
        self._slots, self._entries = index_slots, index_entries
        self.files: StoreFiles = find_files(folder, logs, log_file_size, queue_file_size)

    @property
    def shape(self) -> Shape | None:
        """Of the index files: as it was said to be, or Apache's default, or what a file tells; None if none does."""
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
        """What to make anew.

        :raises StoreError: neither the files nor the command line tell how large the new ones have to be.
        """
        from roquet.storetool.files import QUEUE_FILE_SIZE
        from roquet.storetool.read.index_files import Shape
        from roquet.storetool.rebuild import Plan, notes_file_size

        size = self.files.queue_file_size or QUEUE_FILE_SIZE
        if index and self.shape is None:
            raise StoreError(
                "the number of slots and entries of an index file cannot be told from its size: "
                "say it with -c broker.conf, or with --index-slots and --index-entries"
            )
        levels = self.config.delay_levels.ms if self.config is not None else _DELAY_LEVELS_MS
        return Plan(
            queues, index, size, self.shape or Shape(), levels, notes_file_size(self.files.root)
        )


def _read_config(path: Path) -> BrokerConfig:
    from roquet.broker.config.broker import read_config
    from roquet.common.settings import read_file

    return read_config(read_file(path).pairs, str(path))[0]


def _log_folders(config: BrokerConfig, folder: Path) -> tuple[Path, ...]:
    """Where the configuration has the log, unless that is below a store folder which DIR is not."""
    if config.store.store_path_commit_log is None:
        return (folder / "commitlog", *config.read_only_log_folders)
    return (*config.commit_log_folders, *config.read_only_log_folders)
