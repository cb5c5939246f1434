"""Names of fields as Java spells them: settings, headers and JSON members."""

from __future__ import annotations


def camel_case(name: str) -> str:
    """The name of a Python field in camel case: `queueOffset` of `queue_offset`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
