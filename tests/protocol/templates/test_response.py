"""Templates give what the general encoder gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.protocol.remoting.command import BINARY, JSON, Command
from roquet.protocol.templates.response import ResponseTemplate

values = st.lists(st.text("0123456789ABCDEF", min_size=1, max_size=40), min_size=2, max_size=2)


@pytest.mark.parametrize("always", [{}, {"REGION": '100%d "b" ä', "TRACE_ON": "true"}])
@pytest.mark.parametrize("remark", [None, "FOUND", "100%b"])
@given(values, st.integers(0, 2**31 - 1), st.binary(max_size=20))
def test_an_answer_of_a_form_is_that_of_the_general_encoder(
    always: dict[str, str], remark: str | None, texts: list[str], opaque: int, body: bytes
) -> None:
    template = ResponseTemplate(0, remark, always, ("a", "bc"))
    encoded = [text.encode() for text in texts]
    fields = {**always, "a": texts[0], "bc": texts[1]}
    as_binary = (
        Command(1, opaque=opaque, header_type=BINARY).answer(0, remark, fields, body).encode()
    )
    as_json = Command(1, opaque=opaque, header_type=JSON).answer(0, remark, fields, body).encode()

    first, second, third = template.binary((len(encoded[0]), len(encoded[1])), len(body))
    assert (
        first + opaque.to_bytes(4, "big") + second + encoded[0] + third + encoded[1] + body
        == as_binary
    )
    assert template.json(b"%d" % opaque, encoded, len(body)) + body == as_json
