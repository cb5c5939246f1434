"""One store in many hands: Apache's broker and ours open it in any order, and each of them is
stopped or killed.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

from tests.interop.apache import ApacheNameServer, JavaClients, require_java
from tests.interop.place import Place, last_file_start
from tests.interop.stored import assert_serves_its_log, log_queues

pytestmark = [pytest.mark.process, pytest.mark.interop]

SMALL: dict[str, str | int] = {
    "mappedFileSizeCommitLog": 64 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 50,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "flushConsumeQueueThoroughInterval": 500,
}
KINDS: tuple[tuple[object, ...], ...] = (
    (30, "--tag", "A,B", "--size", 1000),
    (20, "--batch", 10, "--tag", "A"),
    (4, "--size", 20_000),
    (10, "--queue", 2),
)


def test_a_store_is_whole_in_whatever_hands_it_was(
    soak_seed: int, hands: int, tmp_path: Path
) -> None:
    require_java()
    chance = random.Random(soak_seed)
    with ApacheNameServer() as names, JavaClients() as clients:
        place = Place(names.address, tmp_path / "store", clients["4.9.7-json"], SMALL)
        keys_from, killed = 0, False
        for life in range(hands):
            is_apaches = chance.random() < 0.5
            if is_apaches and killed:  # It keeps the keys of what it reads again, and no others.
                keys_from = max(keys_from, last_file_start(place))
            killed = live(place, chance, life, keys_from, is_apaches=is_apaches)
        with place.ours():
            stored = [each for has in log_queues(place.store_dir).values() for each in has.values()]
            place.takes("Hands", "G", len(stored))


def live(
    place: Place, chance: random.Random, life: int, keys_from: int, *, is_apaches: bool
) -> bool:
    """Whether it ended with a kill."""
    broker = place.apaches() if is_apaches else place.ours()
    say(f"{life}: {'Apache' if is_apaches else 'roquet'} opens it")
    with broker:
        if life:
            assert_serves_its_log(broker.address, place.store_dir, keys_from=keys_from)
        for n in range(chance.randrange(5) if life else 1):
            count, *kind = chance.choice(KINDS) if life else KINDS[0]
            place.produce(
                "Hands",
                int(str(count)),
                "--keys",
                f"k-{life}-{n}-",
                "--body",
                f"{life}-{n}-",
                *kind,
            )
        time.sleep(
            chance.choice((0, chance.uniform(0, 5)))
        )  # Checkpoints are made meanwhile, or not.
        assert_serves_its_log(broker.address, place.store_dir, keys_from=keys_from)
        ends_badly = chance.random() < 0.6
        say(f"{life}: {'a kill' if ends_badly else 'a stop'}")
        if ends_badly:
            broker.kill()
        else:
            broker.stop()
        return ends_badly


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
