"""`python -m bench`: roquet's broker and Apache's, measured in turn; `--help` lists what can be
chosen.
"""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from bench import machine
from bench.measure import Run, measure
from bench.options import HERE, Options, Side, read_options
from bench.profiling import Profile, profile_into
from bench.programs import CLIENT_JVM, broker_jvm, compile_roquet
from bench.table import page

OUT = HERE / "out"


def main(arguments: Sequence[str]) -> None:
    options = read_options(arguments)
    signal.signal(
        signal.SIGTERM, lambda number, _: sys.exit(128 + number)
    )  # So that nothing is left running.
    OUT.mkdir(exist_ok=True)
    compile_roquet()
    if options.profiler is not None:
        _profile(options)
        return
    began = datetime.now(UTC)
    setting = _setting(options, arguments, began)
    raw = OUT / f"{began:%Y%m%d-%H%M%S}.json"
    runs: list[Run] = []
    failures: list[str] = []
    for number, load, side in product(range(1, options.rounds + 1), options.loads, options.sides):
        try:
            runs.append(measure(load, side, number, options, Profile()))
        except (RuntimeError, TimeoutError, OSError) as error:
            print(error, file=sys.stderr, flush=True)
            failures.append(f"`{load.name}` {side} round {number}: {str(error).splitlines()[0]}")
            continue
        _say(runs[-1])
        _save(raw, setting, runs)
        options.results.write_text(page(options.loads, runs, setting, failures))
    if failures:
        sys.exit("\n".join(failures))


def _profile(options: Options) -> None:
    for load in options.loads:
        profile = profile_into(OUT, load.name, options.profiler)
        run = measure(load, Side.ROQUET, 1, options, profile)
        text = profile.top()
        (OUT / f"{load.name}.{options.profiler}.txt").write_text(text)
        _say(run)
        print(text, flush=True)


def _setting(options: Options, arguments: Sequence[str], began: datetime) -> list[str]:
    """What somebody needs who wants to do the same."""
    return [
        f"{began:%Y-%m-%d}, `{shlex.join(['.venv/bin/python', '-m', 'bench', *arguments])}`",
        machine.describe(),
        f"roquet: `roquet broker -c FILE`, {machine.describe_python()}",
        f"Apache's broker 4.9.7: {machine.describe_java()}, `{' '.join(broker_jvm(options.heap))}`",
        f"clients: the benchmark classes of rocketmq-example 5.5.0, `{' '.join(CLIENT_JVM)}`; they speak with binary"
        " headers unless JSON is said",
        "both brokers: the same broker.conf (ASYNC_MASTER, ASYNC_FLUSH, everything else at Apache's defaults), an empty"
        " store on the same disk, the topic BenchmarkTest with 1024 queues; roquet's name server for both, a fresh one"
        " per run",
        f"{options.rounds} rounds, in each every load against {' then '.join(options.sides)}; {options.warmup_s:.0f} s"
        f" of warm-up, then {options.windows} windows of {options.window_s:.0f} s",
        f"`consume` reads a backlog of {options.backlog:,} messages, written before and still in memory; nothing is"
        " sent meanwhile, so the broker's work is pulls and stored progress",
        "CPU is user and system time of the whole process over a window, per message acknowledged or consumed in it",
    ]


def _say(run: Run) -> None:
    print(
        f"round {run.round}, {run.load}, {run.side}: first message after {run.start_s:.2f} s",
        flush=True,
    )
    for window in run.windows:
        print(
            f"  {window.messages_per_s:>9,.0f} messages/s, CPU µs/message: broker {window.broker_cpu_us:.1f},"
            f" client {window.client_cpu_us:.1f}; failed {window.failed:,}; others {window.others:.0%} of the cores",
            flush=True,
        )


def _save(file: Path, setting: Sequence[str], runs: Sequence[Run]) -> None:
    file.write_text(
        json.dumps({"setting": setting, "runs": [asdict(run) for run in runs]}, indent=1)
    )


if __name__ == "__main__":
    main(sys.argv[1:])
