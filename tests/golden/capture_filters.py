"""What Apache's SQL92 filters say of many expressions and messages, also of those that they should
not take.

And what its broker keeps of them: the store of one that had consumers with such filters.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import product
from typing import Final

from tests.golden.collection import Collection, shown
from tests.golden.stage import BROKER, IPV4, say
from tests.interop.apache import ApacheBroker, ApacheNameServer, run_driver, start_driver
from tests.interop.filters import ApacheFilters
from tests.interop.toolchain import Version

FILE: Final = "filters/sql92.txt"
VERDICTS: Final = "messages, then what filters say of each: t(rue), f(alse), n(ull), x: throws, -: does not compile"
BLOOM_FILE: Final = "filters/bloom.txt"
BLOOM: Final = [
    (error_percent, expected, f"gr\u00fcppe-{error_percent}#topic-{expected}"[:size])
    for error_percent in (1, 10, 20, 50, 99)
    for expected in (1, 32, 1000)
    for size in (1, 15, 16, 17, 40)
]

TOPIC: Final = "GoldenFilters"
PROPERTIES: Final[dict[str, str | int]] = {
    "mappedFileSizeCommitLog": 16_384,
    "mappedFileSizeConsumeQueue": 1_000,
    "mappedFileSizeConsumeQueueExt": 1_024,
    "enablePropertyFilter": "true",
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
}
GROUPS: Final = {
    "GoldenSmall": "number < 3",
    "GoldenBlue": "colour = 'blue' AND number BETWEEN 2 AND 4",
    "GoldenNot": "NOT (number >= 6) AND colour IS NOT NULL",
}

MESSAGES: Final[tuple[dict[str, str], ...]] = (
    {},
    {"a": "5", "b": "5"},
    {"a": "3", "b": "7"},
    {"a": "abc", "b": "true"},
    {"a": "abc"},
    {"b": "yes"},
    {"a": "TRUE", "b": "false"},
    {"a": "5.0", "b": "5"},
    {"a": "-5", "b": "+5"},
    {"a": " 5 ", "b": "5f"},
    {"a": "2147483647", "b": "2147483648"},
    {"a": "-2147483648", "b": "-2147483649"},
    {"a": "9223372036854775807", "b": "9223372036854775808"},
    {"a": "-9223372036854775808", "b": "-9223372036854775809"},
    {"a": "NaN", "b": "NaN"},
    {"a": "Infinity", "b": "-Infinity"},
    {"a": "-0.0", "b": "0.0"},
    {"a": "1e400", "b": "1e-400"},
    {"a": "0x1.8p1", "b": "0x10"},
    {"a": "", "b": " "},
    {"a": "it's", "b": "''"},
    {"a": "\u0665", "b": "\uff15"},
    {"a": "\U0001d7d3", "b": "1_0"},
    {"a": "00000000000000000000000005", "b": "1d"},
    {"A": "5", "a1": "5", "_x$": "5", "null": "5", "TAGS": "TagA"},
    {"a": "4.9E-324", "b": "1.7976931348623157E308"},
    {"a": "infinity", "b": "nan"},
    {"a": "9007199254740993", "b": "9007199254740992"},
)

OPERANDS: Final = (
    "a", "b", "5", "-5", "5.0", "2147483648", "9223372036854775807", "9007199254740993", "'5'", "'abc'", "TRUE",
    "FALSE", "NULL", "(b)", "-a", "-TRUE", "-'5'", "(a = 5)", "(b > 1)", "(NOT a)", "- (a = 5)", "(-5.0)", "4.9E-324",
    "3", "0",
)  # fmt: skip
OPERATORS: Final = ("=", "<>", ">", ">=", "<", "<=")
SIDES: Final = ("TRUE", "FALSE", "NULL", "a", "(a = 5)", "(a > 1)", "(a IS NULL)")

BY_HAND: Final = (
    # whole expressions, and what stands behind them
    "", " ", "a", "b", "TRUE", "FALSE", "NULL", "5", "'a'", "-a", "+a", "(a)", "((a))", "(((TRUE)))", "()", "(", ")",
    "a )", "a = 1 garbage", "a LIKE 'x'", "a + 1 = 2", "a = 007", "a == 5", "a != 5", "a = 5 ?", "a = 5 ! x",
    "a = 5 'x'", "a = 5 'x", "a = 5 @", "a = 5 ; b", "a.b = 5", "a = 5 a = ?", "a = 5 (", "a = 5 5 ?", "TRUE TRUE",
    "a = 5 \u00e9", "a = 5 AND", "a = 5 OR", "AND a = 5", "a AND OR b", "a = ", "= 5", "a = 5 b ?", "a = 5, b = 5",
    "a = 5) OR b",
    # names and words
    "A = 5", "a1 = '5'", "_x$ = 5", "$ = 5", "1a = 5", "true", "True = a", "a = tRuE", "null", "nOt TRUE", "not a = 5",
    "\u212a = 5", "TAGS = 'TagA'", "TAGS in ('TagA', 'TagB')", "(TAGS is not null and TAGS in ('TagA', 'TagB'))",
    "truex", "a is Null", "isnull", "a ANDb", "'a'AND'b'", "a=5AND b=5", "a=5 AND(b=5)", "NOT(a=5)", "NOTa = 5",
    "between = 5", "\u0131n = 5", "a \u017fs null", "\uff41 = 5", "a\u00a0= 5", "a\x0b= 5", "a\x00= 5", "a\ufeff= 5",
    # numbers
    "a = 0", "a = 00", "a = 5L", "a = 5l", "a = 5LL", "a = 0L", "a = 5 L", "a = 5.", "a = .5", "a = 5.e0", "a = 5.0E0",
    "a = 5E0", "a = 5e", "a = 5e+0", "a = 5e-0", "a = 5.0f", "a = 5d", "a = 0x5", "a = 1_0", "a = 007.0", "a = 0.0",
    "a = -0.0", "a = 0e5", "a = .0", "a > 4.9E-324", "a > 2E-324", "a > 3E-324", "a < 1.7976931348623157E308",
    "a < 1.8E308", "a < 1E309", "a = 2147483647", "a = 2147483648", "a = -2147483648", "a = -2147483649",
    "a = 9223372036854775807", "a = 9223372036854775808", "a = -9223372036854775808", "a = -9223372036854775807",
    "a = 99999999999999999999", "a = 99999999999999999999.0", "a = - 5", "a = --5", "a = - -5", "a = +5", "a = + + 5",
    "a = +-5", "a = -+5", "a = 5 -5", "a = 9007199254740993.0", "5 = 5L", "5 = 5.0", "2147483648 = 2147483648.0",
    "a = \u0665", "9007199254740993 = 9007199254740992.0", "-2147483648 = -2147483648", "5 = '5'", "5 = 'x'", "'5' = 5",
    "'x' = 5", "5.0 = '5'", "'5' = 5.0", "'5d' = 5.0", "'NaN' = 5.0",
    # text
    "a = ''", "a = ''''", "a = 'it''s'", "b = ''''''", "a = 'abc", "a = 'abc''", "a = 'abc' 'x'", "a = \"abc\"",
    "a = 'a\nb'", "a = 'ab' OR a = 'abc'", "a = '\u0665'", "a = '\U0001d7d3'", "a = 'ABC'", "'abc' = a", "'abc' <> a",
    "a = 'abc' = TRUE", "'a' = 'a'", "'a' = 'b'", "'a' <> 'b'", "a > 'abc'", "'abc' < a", "a > '5'",
    # comments and blanks
    "a = 5 -- note", "a = 5 -- note\n", "a = -- note\n 5", "a = -- note", "a -- note\r= 5", "a -- note\r\n= 5",
    "--\na = 5", "a /* x */ = 5", "/**/a = 5", "/***/a = 5", "/* * / */a = 5", "/*/a = 5", "/*/*/a = 5", "/* a = 5",
    "a = 5 /* x", "a = 5 /* x */", "a\t=\n5\r\f", "a = 5 - - x", "a = 5 /", "a/**/=/**/5",
    "a = 5 /* x */ OR /* y */ TRUE", "/* */ */ a = 5", "a = 5 -- x\n OR TRUE", "--", "/* x */", "-- x\n",
    # null
    "a IS NULL", "a IS NOT NULL", "NOT a IS NULL", "NOT (a IS NULL)", "a IS NULL IS NULL", "a IS NOT NULL IS NOT NULL",
    "NULL IS NULL", "NULL IS NOT NULL", "5 IS NULL", "'x' IS NOT NULL", "TRUE IS NULL", "a IS", "a IS NOT", "a IS 5",
    "a IS TRUE", "a IS NOT 5", "a IS NULL NULL", "(a = 5) IS NULL", "(a = 'x') IS NOT NULL", "-a IS NULL", "a = NULL",
    "NULL = a", "a <> NULL", "NULL <> NULL", "a = (NULL)", "(NULL) = a", "a > NULL", "NULL < 5", "-NULL = a",
    "-NULL IS NULL", "(a > b) IS NULL", "(a > 5) IS NULL", "(a <> b) IS NULL", "a = b IS NULL", "a IS NULL = b IS NULL",
    "a IS NULL = TRUE",
    # NOT
    "NOT a", "NOT NOT a", "NOT a = 1", "NOT a = TRUE", "NOT a = FALSE", "NOT (a = 1)", "NOT TRUE", "NOT FALSE",
    "NOT NULL", "NOT 5", "NOT 'x'", "NOT -a", "NOT (5)", "NOT", "NOT (a = 5) = TRUE", "NOT a > 5", "NOT (a > 5)",
    "NOT a AND b", "NOT (a = 'x') AND TRUE", "a NOT 5", "a NOT", "a NOT NULL", "a NOT ?", "NOT a IS NOT NULL",
    "a = NOT b", "a = NOT TRUE", "TRUE = NOT a", "a = NOT (b = 5)", "NOT (NOT (a = 5))", "NOT a BETWEEN 1 AND 5",
    "NOT a IN ('5')", "-(NOT a) = 5",
    # BETWEEN
    "a BETWEEN 1 AND 5", "a BETWEEN 5 AND 5", "a BETWEEN 5 AND 1", "a BETWEEN 1 AND 5 AND b = '5'",
    "a BETWEEN 1.0 AND 5", "a BETWEEN 1 AND b", "a BETWEEN b AND 10", "a BETWEEN b AND b", "b BETWEEN a AND a",
    "a BETWEEN -5 AND 5", "a BETWEEN 5 AND -5", "a BETWEEN 'a' AND 'z'", "a BETWEEN 'z' AND 'a'",
    "a BETWEEN NULL AND 5", "a BETWEEN 1 AND NULL", "a BETWEEN TRUE AND 5", "a BETWEEN 1 AND 'x'", "5 BETWEEN 1 AND 10",
    "5 BETWEEN a AND b", "'5' BETWEEN 1 AND 5", "TRUE BETWEEN 1 AND 5", "(a = 5) BETWEEN 1 AND 5",
    "a NOT BETWEEN 1 AND 5", "a NOT BETWEEN 5 AND 1", "a BETWEEN 1 OR 5", "a NOT BETWEEN NULL AND 5",
    "a NOT BETWEEN 'x' AND 5", "a BETWEEN 1", "a BETWEEN", "a BETWEEN 1 AND", "a BETWEEN 1 5", "a BETWEEN (1) AND (5)",
    "a BETWEEN 1 AND 5 BETWEEN 1 AND 5", "a BETWEEN 1 AND (b = 5)", "a BETWEEN 1 AND NOT b",
    "a BETWEEN 9007199254740993 AND 9007199254740992.0", "a BETWEEN 2147483648 AND 2147483647",
    "a BETWEEN 1 AND 5 OR TRUE", "a BETWEEN 5 AND 2147483648", "a BETWEEN 4.9E-324 AND 3", "a NOT BETWEEN 1 AND b",
    "-5 BETWEEN a AND b",
    # IN
    "a IN ('5')", "a IN ('abc', '5')", "a NOT IN ('5')", "a IN ()", "a IN '5'", "a IN ('5'", "a IN ('5',)",
    "a IN (,'5')", "a IN (5)", "a IN ('5', 5)", "a IN (b)", "a IN (NULL)", "a IN ('5', NULL)", "5 IN ('5')",
    "'5' IN ('5')", "(a) IN ('5')", "((a)) NOT IN ('5')", "-a IN ('5')", "NOT a IN ('5')", "NOT (a IN ('5'))",
    "a IN ('5') = TRUE", "a IN ('5') AND b = '5'", "a IN ('5') IN ('5')", "TRUE IN ('5')",
    "a IN ('1', '2', '3', '4', '5', '6')", "a NOT IN ('1', '2', '3', '4', '5')", "a IN ('5', '5')", "a IN('5')",
    "a NOT IN", "a NOT IN ('5', 'abc') OR b IN ('yes')", "a IN ('it''s', '')",
    # AND, OR, what is evaluated at all
    "a = 5 AND b = 5", "a = 5 OR b = 5", "a = 'abc' OR a = 5", "a = 5 OR a = 'abc'", "a = 'abc' AND a = 5", "a AND b",
    "a OR b", "NOT a AND NOT b", "NOT a OR NOT b", "a OR NOT a", "TRUE OR a = 5", "FALSE AND a = 5", "a = 5 OR TRUE",
    "a = 5 AND FALSE", "a = 5 AND b = 5 OR a = 'abc'", "a = 'abc' OR a = 5 AND b = 5",
    "(a = 'abc' OR b = '5') AND a = 5", "5 AND a", "a AND 5", "a OR 'x'", "'x' OR a", "a AND -b",
    "TRUE AND TRUE AND NULL", "NULL OR NULL OR TRUE", "NULL AND NULL AND FALSE", "NOT (NULL AND FALSE)",
    "NOT (NULL OR FALSE)", "(a = 5) = (b = 5)", "(a = '5') <> (b = '5')", "(a IS NULL) = (b IS NULL)", "(a = b) = TRUE",
    "TRUE = (a = b)", "a = 5 = TRUE", "a = 5 = b", "a = b = TRUE", "a < b < 5", "a > b > 5", "a = b < 5", "TRUE = a",
    "FALSE <> b", "a = TRUE", "a = FALSE", "b = FALSE", "b <> TRUE", "TRUE = TRUE", "TRUE = FALSE", "TRUE = 5",
    "5 = TRUE", "'true' = TRUE", "TRUE = 'true'", "TRUE <> 5", "5 <> TRUE", "(a) = TRUE", "TRUE = (a)", "(a = 5) = 5",
    "(a = '5') = 'true'", "(a = '5') = b", "b = (a = '5')", "a > TRUE", "TRUE < 5", "(a = 5) > 1", "1 < (a = 5)",
    "((((((((((a = '5'))))))))))", "NOT NOT NOT NOT (a = '5')", "a = ((((5))))", "a AND (b OR (a AND (b OR NOT a)))",
)  # fmt: skip


def expressions() -> list[str]:
    """Each operand with each on either side of each operator, what AND and OR make of truths, and
    those by hand.
    """
    compared = [" ".join(words) for words in product(OPERANDS, OPERATORS, OPERANDS)]
    joined = [
        f"{left} {word} {right}" for left, word, right in product(SIDES, ("AND", "OR"), SIDES)
    ]
    return list(dict.fromkeys([*BY_HAND, *joined, *compared]))


def capture(collection: Collection) -> None:
    collection.clear("filters")
    asked = expressions()
    say(f"{Version.V4} {len(asked)} expressions, {len(MESSAGES)} messages")
    with ApacheFilters() as filters:
        _add(collection, FILE, filters.table(MESSAGES, asked), VERDICTS)
        _add(
            collection,
            BLOOM_FILE,
            [filters.bloom(*asked) for asked in BLOOM],
            "Bloom filters and bits of texts",
        )
    _add_broker(collection)


def _add(collection: Collection, file: str, lines: list[str], what: str) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    collection.add(file, data, what, f"Apache filters {Version.V4}", "java roquet.Filters")


def _add_broker(collection: Collection) -> None:
    """Messages from before its consumers came, from when they were there, and from when they had
    left.
    """
    with ExitStack() as stack:
        name_server = stack.enter_context(ApacheNameServer(java_options=[IPV4]))
        broker = stack.enter_context(
            ApacheBroker(name_server.address, properties=PROPERTIES, java_options=[IPV4])
        )
        _produce(name_server.address, "early-")
        readers = [
            stack.enter_context(
                start_driver(Version.V4, *_reading(name_server.address, group, sql))
            )
            for group, sql in GROUPS.items()
        ]
        for reader in readers:
            reader.wait_lines(1)
        _produce(name_server.address, "middle-")
        for reader in readers:
            reader.stop()
        _produce(name_server.address, "late-")
        broker.stop()
        line = f"BrokerStartup with {shown(*(f'{key}={value}' for key, value in PROPERTIES.items()))}, ended by SIGTERM"
        for folder in (
            "commitlog",
            f"consumequeue/{TOPIC}",
            f"consumequeue_ext/{TOPIC}",
            "config/consumerFilter.json",
        ):
            place = broker.store_dir / folder
            for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
                if file.is_file():
                    name = f"filters/store/{file.relative_to(broker.store_dir)}"
                    collection.add(
                        name, file.read_bytes(), "file of a broker with filters", BROKER.title, line
                    )


def _produce(namesrv: str, body: str) -> None:
    words = ("produce", namesrv, TOPIC, 8, "--body", body, "--property", "colour=blue,number={i}")
    say(shown(*words))
    run_driver(Version.V4, *words, java_options=[IPV4]).check()


def _reading(namesrv: str, group: str, sql: str) -> tuple[str | int, ...]:
    return ("consume", namesrv, TOPIC, group, 1000, 300, "--sql", sql, "--heartbeat", 1000)
