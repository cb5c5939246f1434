"""Our SQL92 filters beside Apache's, on expressions that nobody thought of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.interop.apache import require_java
from tests.interop.filters import ApacheFilters
from tests.protocol.expressions import expressions, messages
from tests.protocol.filters.answers import answer

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def apache() -> Iterator[ApacheFilters]:
    require_java()
    with ApacheFilters() as running:
        yield running


@settings(max_examples=60)
@given(
    asked=st.lists(messages, min_size=1, max_size=12),
    texts=st.lists(expressions.filter(lambda text: "\x00" not in text), min_size=1, max_size=60),
)
def test_we_say_what_apache_says(
    apache: ApacheFilters, asked: list[dict[str, str]], texts: list[str]
) -> None:
    theirs = [line.partition("\t")[0] for line in apache.table(asked, texts)[len(asked) :]]

    assert [answer(text, asked) for text in texts] == theirs
