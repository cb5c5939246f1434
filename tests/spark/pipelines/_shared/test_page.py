"""Pages of HTML show what they are given, and nothing of it is taken for HTML."""

from __future__ import annotations

from roquet.spark.pipelines._shared.page import heading, page, paragraph, table


def test_a_page_has_its_title_and_its_parts() -> None:
    text = page("a < b", [heading("x & y"), paragraph('"quoted"')])

    assert text.startswith("<!doctype html>\n")
    assert "<title>a &lt; b</title>" in text
    assert "<h1>a &lt; b</h1>\n<h2>x &amp; y</h2>\n<p>&quot;quoted&quot;</p></body>" in text


def test_a_table_shows_numbers_words_and_nothing() -> None:
    text = table(("queue", "<b>"), [("a<b", 1234567), (None, 0)], marked=(False, True))

    assert text == (
        "<table><tr><th>queue</th><th>&lt;b&gt;</th></tr>"
        '<tr><td>a&lt;b</td><td class="n">1,234,567</td></tr>'
        '<tr class="bad"><td>–</td><td class="n">0</td></tr></table>'
    )


def test_rows_beyond_the_marks_are_not_marked() -> None:
    assert table(("x",), [(1,), (2,)], marked=(True,)).count('class="bad"') == 1
    assert table(("x",), []) == "<table><tr><th>x</th></tr></table>"
