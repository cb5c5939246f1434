"""One small fault in the source, and the tests that have to notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SOURCE = Path("src/roquet")


class MisfitError(Exception):
    """The source has changed under a mutant: its old text is not there, or is there more than
    once.
    """


@dataclass(frozen=True)
class Change:
    """`old` becomes `new` in one file below `src/roquet`."""

    file: str
    old: str
    new: str

    @property
    def path(self) -> Path:
        return SOURCE / self.file

    def applied(self, source: str) -> str:
        """The file's text with the fault in it.

        :raises MisfitError: `old` does not occur exactly once, or nothing changes.
        """
        found = source.count(self.old)
        if found != 1:
            raise MisfitError(
                f"{self.old!r} occurs {found} times in {self.path}; it must occur once"
            )
        changed = source.replace(self.old, self.new)
        if changed == source:
            raise MisfitError(f"{self.path}: old and new text are the same")
        compile(changed, str(self.path), "exec")
        return changed


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in one file below `src/roquet`.

    :param name: what goes wrong, in a few words; unique.
    :param tests: arguments of pytest, the tests that should fail; the fastest that does is the
        best.
    :param once: what went wrong while the program had this fault, before somebody found it.
    :param simulation: simulated clusters that should fail, too; for every fault that the program
        once had.
    :param also: what has to go as well where two places stand against the same fault.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    once: str = ""
    simulation: tuple[str, ...] = ()
    also: tuple[Change, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """One after the other."""
        return Change(self.file, self.old, self.new), *self.also
