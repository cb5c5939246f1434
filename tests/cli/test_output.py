"""What commands print of names that peers chose: nothing of it does anything to a terminal."""

from __future__ import annotations

import json

import pytest

from roquet.cli.output import json_line, say, show, table

HOSTILE = "a\n\x1b[2J\x9b\u202eé"
ESCAPED = r"a\n\x1b[2J\x9b\u202eé"


def test_a_row_of_a_table_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    table(("NAME\t", "COUNT"), [(HOSTILE, "1"), ("b", "10")])

    width = len(ESCAPED)
    lines = [
        f"{title:<{width}}  {count:>5}"
        for title, count in ((r"NAME\t", "COUNT"), (ESCAPED, 1), ("b", 10))
    ]
    assert capsys.readouterr().out.split("\n") == [*lines, ""]


def test_other_lines_stay_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(HOSTILE)
    say(HOSTILE)

    assert capsys.readouterr() == (f"{ESCAPED}\n", f"roquet: {ESCAPED}\n")


@pytest.mark.parametrize(
    ("text", "line"), [("é", '{"body": "é"}'), ("é\x9b\u202e", r'{"body": "\u00e9\u009b\u202e"}')]
)
def test_json_keeps_its_letters_unless_one_of_them_is_not_printed(text: str, line: str) -> None:
    assert json_line({"body": text}) == line
    assert json.loads(line) == {"body": text}
