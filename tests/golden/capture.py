"""Makes the files of this directory anew: `python -m tests.golden.capture [frames] [store] [ha]
[filters]`.

It needs Java and Maven (and Go for the frames), as the interop tests do, and takes some minutes.
"""

from __future__ import annotations

import argparse

from tests.golden import capture_filters, capture_frames, capture_ha, capture_store
from tests.golden.collection import Collection
from tests.golden.stage import say

PARTS = {
    "frames": capture_frames.capture,
    "store": capture_store.capture,
    "ha": capture_ha.capture,
    "filters": capture_filters.capture,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Runs Apache's programs and keeps what they write."
    )
    parser.add_argument(
        "parts",
        nargs="*",
        choices=[*PARTS, []],
        help="only these parts; all of them if none is named",
    )
    chosen = parser.parse_args().parts or list(PARTS)
    collection = Collection()
    for part in chosen:
        PARTS[part](collection)
        collection.write()
    say(f"{collection.size()} bytes in all")


if __name__ == "__main__":
    main()
