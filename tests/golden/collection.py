"""The files of this directory and their manifest: what each file is, who wrote its bytes and the
command that made it.

Invariant: every file below the collection's root is in the manifest, and the other way round.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.golden.frames import REQUEST_NAMES, Exchange, exchanges
from tests.golden.proxy import Connection, Side

ROOT = Path(__file__).parent
MANIFEST = "MANIFEST.json"
FRAME_SIZE_MAX = 32_768


@dataclass(frozen=True)
class Entry:
    """One file. `command` is the line that made it; ports and directories in it differ from run to
    run.
    """

    file: str
    what: str
    written_by: str
    command: str
    direction: str
    size: int


@dataclass(frozen=True)
class Peer:
    """A program at one end of a recorded connection: the directory of its frames, and its name in
    the manifest.
    """

    directory: str
    title: str


class Collection:
    """What captures gather. Nothing below `root` changes before `write`: a capture that fails
    leaves the old files.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._entries = {entry.file: entry for entry in read_manifest(root)}
        self._new: dict[str, bytes] = {}
        self._cleared: set[str] = set()

    def clear(self, part: str) -> None:
        """Forgets a part, such as `frames`, before it is captured again."""
        self._entries = {
            file: entry for file, entry in self._entries.items() if not file.startswith(f"{part}/")
        }
        self._cleared.add(part)

    def __contains__(self, file: str) -> bool:
        return file in self._entries

    def add(
        self, file: str, data: bytes, what: str, written_by: str, command: str, direction: str = ""
    ) -> None:
        self._entries[file] = Entry(file, what, written_by, command, direction, len(data))
        self._new[file] = data

    def add_exchanges(
        self, caller: Peer, server: Peer, command: str, connections: Iterable[Connection]
    ) -> None:
        """The first of every kind of request that passed, with its answer; later ones of the same
        kind are left out.
        """
        for connection in connections:
            for exchange in exchanges(connection):
                self._add_exchange(caller, server, command, exchange)

    def _add_exchange(self, caller: Peer, server: Peer, command: str, exchange: Exchange) -> None:
        request, answer = exchange.request, exchange.answer
        name = f"{caller.directory}/{exchange.name}"
        frames = [frame for frame in (request, answer) if frame is not None]
        if f"{name}.request.bin" in self or any(
            len(frame.data) > FRAME_SIZE_MAX for frame in frames
        ):
            return
        asks, replies = (caller, server) if request.side is Side.CALLER else (server, caller)
        title = f"code {request.code} {REQUEST_NAMES.get(request.code, 'unnamed')}"
        what = f"request, {title}, {request.form} header"
        if answer is None and not request.is_one_way:
            what += ", never answered"
        self.add(
            f"{name}.request.bin",
            request.data,
            what,
            asks.title,
            command,
            f"{asks.title} to {replies.title}",
        )
        if answer is not None:
            waited = answer.at_ms - request.at_ms
            what = f"answer {answer.code} to {title}, {answer.form} header, after {waited} ms"
            direction = f"{replies.title} to {asks.title}"
            self.add(f"{name}.response.bin", answer.data, what, replies.title, command, direction)

    def write(self) -> None:
        for part in self._cleared:
            shutil.rmtree(self.root / part, ignore_errors=True)
        for file, data in self._new.items():
            (self.root / file).parent.mkdir(parents=True, exist_ok=True)
            (self.root / file).write_bytes(data)
        lines = [
            json.dumps(asdict(self._entries[file]), ensure_ascii=False)
            for file in sorted(self._entries)
        ]
        (self.root / MANIFEST).write_text("[\n" + ",\n".join(lines) + "\n]\n")
        self._new.clear()
        self._cleared.clear()

    def size(self) -> int:
        return sum(entry.size for entry in self._entries.values())


def read_manifest(root: Path = ROOT) -> list[Entry]:
    manifest = root / MANIFEST
    return (
        [Entry(**values) for values in json.loads(manifest.read_text())]
        if manifest.exists()
        else []
    )


def shown(*words: object) -> str:
    """A command as the manifest shows it."""
    return " ".join(map(str, words))
