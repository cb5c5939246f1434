"""SQL92 expressions of every form, sound and broken, and properties to try them on."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

NUMBERS: Final = (
    "5",
    "0",
    "-5",
    "5.0",
    "1e3",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9223372036854775807",
    "7L",
)
TEXTS: Final = (
    "5",
    "abc",
    "true",
    "False",
    "",
    "5.0",
    "NaN",
    "-0.0",
    "1e400",
    "0x1p3",
    " 5 ",
    "it's",
    "9223372036854775808",
)
_names = st.sampled_from(["a", "b", "c", "A", "_x", "$y1"])
_numbers = (
    st.sampled_from(NUMBERS)
    | st.integers(-(2**64), 2**64).map(str)
    | st.floats(0, allow_nan=False).map(str)
)
_texts = st.sampled_from(TEXTS) | st.text(max_size=5)
_quoted = _texts.map(lambda text: "'" + text.replace("'", "''") + "'")
_leaves = st.one_of(_names, _names, _numbers, _quoted, st.sampled_from(["TRUE", "false", "Null"]))
_blanks = st.sampled_from([" ", " ", " ", "\n", "\t", " /* x */ ", " -- x\n"])


def _composed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["=", "<>", ">", ">=", "<", "<=", "AND", "OR", "and", "Or"])
    lists = st.lists(_quoted, min_size=1, max_size=6).map(", ".join)
    negation = st.sampled_from(["", "NOT "])
    return st.one_of(
        st.builds("{1}{0}{2}{0}{3}".format, _blanks, inner, operators, inner),
        st.builds("({})".format, inner),
        st.builds("{} {}".format, st.sampled_from(["NOT", "-", "+"]), inner),
        st.builds("{} IS {}NULL".format, inner, negation),
        st.builds("{} {}IN ({})".format, inner, negation, lists),
        st.builds("{} {}BETWEEN {} AND {}".format, inner, negation, inner, inner),
    )


_well_formed = st.recursive(_leaves, _composed, max_leaves=8)
"""By the grammar; most compare what cannot be compared."""

_comparable = _names | _numbers.filter(lambda text: "-" not in text and text != "0.0")
_simple = st.one_of(
    st.builds(
        "{} {} {}".format, _names, st.sampled_from(["=", "<>", ">", ">=", "<", "<="]), _comparable
    ),
    st.builds("{} {} {}".format, _comparable, st.sampled_from(["=", "<>", ">", "<="]), _names),
    st.builds(
        "{} {} {}".format,
        _names,
        st.sampled_from(["=", "<>"]),
        _quoted | st.sampled_from(["TRUE", "FALSE"]),
    ),
    st.builds("{} IN ({}, {})".format, _names, _quoted, _quoted),
    st.builds("{} NOT BETWEEN {} AND {}".format, _names, _comparable, _comparable),
    st.builds("{} BETWEEN {} AND {}".format, _names, _names, _comparable),
    st.builds("{} IS NULL".format, _names),
    st.sampled_from(["a", "NULL", "TRUE", "FALSE"]),
)


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    words = st.sampled_from(["AND", "OR", "OR", "AND"])
    return st.one_of(
        st.builds("{1}{0}{2}{0}{3}".format, _blanks, inner, words, inner),
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["=", "<>", "OR"]), inner),
        st.builds("NOT ({})".format, inner),
        st.builds("({}) IS NOT NULL".format, inner),
        st.builds("({})".format, inner),
    )


_conditions = st.recursive(_simple, _joined, max_leaves=8)
_symbols = st.sampled_from(
    ["=", "<>", "<", ">", "(", ")", ",", "+", "-", "--", "/*", "*/", "'", "?", "!", "é"]
)
_keywords = st.sampled_from(["NOT", "AND", "OR", "IS", "IN", "NULL", "BETWEEN"])
_words = st.lists(st.one_of(_leaves, _symbols, _keywords), max_size=12).map(" ".join)
expressions = st.one_of(
    _conditions, _conditions, _conditions, _well_formed, _well_formed, _words, st.text(max_size=12)
)
messages = st.dictionaries(_names, _texts | _numbers, max_size=4)
