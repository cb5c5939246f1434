"""PURE: the key-value table of a name server, such as the queue order of ordered topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics: topic -> `broker-a:4;broker-b:4`."""
SIZE_MAX: Final = 4 * 1024 * 1024
"""Size of the whole table, in characters. Each change rewrites the file."""
PAIR_SIZE: Final = 64
"""Size counted per pair besides its characters: otherwise a table could have a million pairs."""


class KvConfig:
    """Namespace -> key -> value.

    Invariant: no namespace is empty; `size` is the size of all pairs.
    """

    def __init__(self, table: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._table = {
            namespace: dict(pairs) for namespace, pairs in (table or {}).items() if pairs
        }
        self.size = sum(
            _size(namespace, key, value)
            for namespace, pairs in self._table.items()
            for key, value in pairs.items()
        )

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value.

        :raises ValueError: the table would be larger than `SIZE_MAX`.
        """
        before = self.get(namespace, key)
        size = self.size + _size(namespace, key, value)
        if before is not None:
            size -= _size(namespace, key, before)
        if size > SIZE_MAX:
            raise ValueError(
                f"the key-value table would have a size of {size}, allowed is {SIZE_MAX}"
            )
        self._table.setdefault(namespace, {})[key] = value
        self.size = size

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        pairs = self._table.get(namespace, {})
        value = pairs.pop(key, None)
        if value is not None:
            self.size -= _size(namespace, key, value)
        if not pairs:
            self._table.pop(namespace, None)

    def pairs(self, namespace: str) -> dict[str, str] | None:
        """The pairs of a namespace; None if it has none."""
        pairs = self._table.get(namespace)
        return None if pairs is None else dict(pairs)

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> KvConfig:
        """Make the table from the document of Apache's kvConfig.json."""
        return cls(
            {
                str(namespace): {str(key): str(value) for key, value in pairs.items()}
                for namespace, pairs in (json.get("configTable") or {}).items()
            }
        )

    def to_json(self) -> dict[str, Any]:
        return {"configTable": {namespace: dict(pairs) for namespace, pairs in self._table.items()}}


def _size(namespace: str, key: str, value: str) -> int:
    return PAIR_SIZE + len(namespace) + len(key) + len(value)
