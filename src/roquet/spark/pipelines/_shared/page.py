"""PURE: self-contained HTML pages with headings, tables and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_STYLE: Final = (
    "body{font-family:sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:1rem 0}"
    "th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:left}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}tr.bad{background:#fff0e0}"
)


def page(title: str, parts: Iterable[str]) -> str:
    """The whole page; `parts` are HTML."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    body = f"<h1>{escape(title)}</h1>\n" + "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def table(
    titles: Sequence[str], rows: Iterable[Sequence[object]], marked: Sequence[bool] = ()
) -> str:
    """A table. Numbers are right-aligned, None is a dash, and `marked` rows are highlighted."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    lines = [f"<tr>{head}</tr>"]
    for index, row in enumerate(rows):
        kind = ' class="bad"' if index < len(marked) and marked[index] else ""
        lines.append(f"<tr{kind}>{''.join(map(_cell, row))}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="n">{value:,}</td>'
    return f"<td>{'–' if value is None else escape(str(value))}</td>"
