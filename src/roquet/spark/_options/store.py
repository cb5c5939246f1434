"""PURE: parses the options of `format("rocketmq-store")`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from roquet.errors import OptionError
from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from roquet.spark._options.pushed_filters import EVERYTHING, Narrowing, earliest, latest
from roquet.spark._options.selection import Selection
from roquet.spark._options.start_end import AtTime, Offsets, ending, starting
from roquet.spark._options.values import (
    Mode,
    Parsers,
    boolean,
    by_documented_name,
    count,
    listed,
    mode,
    parsed,
    tags,
    uncompressed_max,
)

BYTES_PER_PARTITION: Final = 64 << 20
_SELECTIONS: Final = ("subscribe", "subscribePattern", "assign")
_ALL_BUT_SYSTEM: Final = {"subscribePattern": ".*"}
_SIMPLE: Final[Parsers] = {
    "tags": ("tags", tags),
    "includeProperties": ("include_properties", boolean),
    "bytesPerPartition": ("bytes_per_partition", count),
    "mode": ("mode", mode),
    "maxUncompressedBytes": ("uncompressed_max", uncompressed_max),
    "checkCrc": ("check_crc", boolean),
}
"""Options that do not depend on other options."""
_NAMES: Final = (
    "path",
    "paths",
    "commitLog",
    "brokerName",
    *_SELECTIONS,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    *_SIMPLE,
)
_ALIASES: Final = {"topic": "subscribe"}


@dataclass(frozen=True)
class StoreOptions:
    """The options of one read of store files. Sizes are in bytes.

    `paths` may have wildcards. `commit_log` has the folders of the log if they are not below the
    one store directory. `broker_names` has one name for all stores, one for each, or none. `tags`
    is None for all messages. `narrowing` has the bounds that pushed filters set.
    """

    paths: tuple[str, ...]
    selection: Selection
    starting: Offsets
    ending: Offsets
    commit_log: tuple[str, ...] = ()
    broker_names: tuple[str, ...] = ()
    tags: frozenset[str] | None = None
    include_properties: bool = True
    bytes_per_partition: int = BYTES_PER_PARTITION
    mode: Mode = Mode.FAILFAST
    uncompressed_max: int = UNCOMPRESSED_MAX
    check_crc: bool = True
    narrowing: Narrowing = EVERYTHING

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StoreOptions:
        """Parse the options that Spark passes.

        :raises OptionError: an option is missing, unknown or invalid.
        """
        values = by_documented_name(options, _NAMES, _ALIASES)
        selection = Selection.of(
            values if any(name in values for name in _SELECTIONS) else _ALL_BUT_SYSTEM
        )
        return cls(
            paths=_paths(values),
            selection=selection,
            starting=starting(
                values, selection, default="earliest", wrong="latest", strategy="latest"
            ),
            ending=ending(values, selection),
            commit_log=listed(values.get("commitLog", "")),
            broker_names=tuple(
                part.strip() for part in values.get("brokerName", "").split(",") if part.strip()
            ),
            **parsed(values, _SIMPLE),
        )

    def narrowed_to(self, narrowing: Narrowing) -> StoreOptions:
        """These options with the bounds that pushed filters set."""
        return replace(self, narrowing=narrowing, tags=narrowing.tags_among(self.tags))

    @property
    def since_ms(self) -> int | None:
        """No queue is read for messages stored before this time."""
        return latest(_ms(self.starting), self.narrowing.time_from_ms)

    @property
    def until_ms(self) -> int | None:
        """No queue is read for messages stored at this time or later."""
        return earliest(_ms(self.ending), self.narrowing.time_until_ms)


def _ms(offsets: Offsets) -> int | None:
    return offsets.default.ms if isinstance(offsets.default, AtTime) else None


def _paths(values: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments of `load`: Spark passes one as `path`, several as a JSON list in `paths`."""
    if "path" in values and "paths" in values:
        raise OptionError("path and paths are the same option: give one of them")
    found = _json_list(values["paths"]) if "paths" in values else listed(values.get("path", ""))
    if not found:
        raise OptionError('path is missing: give the store directory, as in load("/data/store")')
    return tuple(map(_local, found))


def _json_list(text: str) -> tuple[str, ...]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise OptionError(
            f'paths: {text!r} is no JSON list of directories, such as ["/data/a", "/data/b"]'
        )
    return tuple(found)


def _local(path: str) -> str:
    scheme, separator, rest = path.partition(":")
    if not separator or "/" in scheme or len(scheme) == 1:  # one letter is a drive
        return path
    if scheme.lower() != "file":
        raise OptionError(
            f"path: {path!r} is no local directory: mount its file system and give the directory"
        )
    return "/" + rest.lstrip("/")
