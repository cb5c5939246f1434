"""Mean arrival delay per carrier, from the original file and from an archive: the same, or the
difference is told.

python -m demo.report ARCHIVE report.png
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import matplotlib as mpl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from demo.flights import TOPIC, Flight, flights
from roquet.spark.pipelines.archive.job import read_archive

FLIGHT_COLUMNS: Final = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, "
    "origin string, dest string, "
    "air_time int, distance int, hour int, minute int, time_hour timestamp"
)
"""A message's body, as Spark's `from_json` is to read it."""


@dataclass(frozen=True)
class Delays:
    """What one carrier's flights came to: sums of whole minutes, so two ways to add them up agree
    exactly.
    """

    flights: int
    arrived: int
    late_minutes: int

    @property
    def mean_minutes(self) -> float:
        return self.late_minutes / self.arrived if self.arrived else 0.0


DelaysByCarrier = Mapping[str, Delays]


def flight_columns(messages: DataFrame) -> DataFrame:
    """Messages of topic flights, as read by `format("rocketmq")`, to a column per value and the
    message's key.
    """
    parsed = messages.select(
        "keys", fn.from_json(fn.col("body").cast("string"), FLIGHT_COLUMNS).alias("row")
    )
    return parsed.select(fn.col("keys").alias("key"), "row.*")


def delays_in_file(rows: Iterable[Flight]) -> DelaysByCarrier:
    """By plain counting, without Spark."""
    totals: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        total, delay = totals[row.carrier], row.values["arr_delay"]
        total[0] += 1
        if isinstance(delay, int):
            total[1] += 1
            total[2] += delay
    return {carrier: Delays(*total) for carrier, total in totals.items()}


def flights_in(spark: SparkSession, archive: Path) -> DataFrame:
    """The flights in an archive, as `flight_columns` gives them."""
    return flight_columns(read_archive(spark, str(archive)).where(fn.col("topic") == TOPIC))


def delays_in(stored: DataFrame) -> DelaysByCarrier:
    """By Spark, from what `flight_columns` gave; a flight that was stored twice counts once."""
    totals = (
        stored.dropDuplicates(["key"])
        .groupBy("carrier")
        .agg(
            fn.count("*").alias("flights"),
            fn.count("arr_delay").alias("arrived"),
            fn.coalesce(fn.sum("arr_delay"), fn.lit(0)).alias("late_minutes"),
        )
    )
    return {
        row.carrier: Delays(row.flights, row.arrived, row.late_minutes) for row in totals.collect()
    }


def differences(file: DelaysByCarrier, parquet: DelaysByCarrier) -> list[str]:
    """A line per carrier for which the two do not say the same."""
    return [
        f"{carrier}: the file says {file.get(carrier)}, Parquet {parquet.get(carrier)}"
        for carrier in sorted(file.keys() | parquet.keys())
        if file.get(carrier) != parquet.get(carrier)
    ]


def table(file: DelaysByCarrier, parquet: DelaysByCarrier) -> str:
    """Both means side by side, the latest carrier first."""
    nothing = Delays(0, 0, 0)
    lines = [f"{'carrier':<8}{'flights':>9}{'file, min':>12}{'Parquet, min':>14}"]
    for carrier in sorted(file, key=lambda each: -file[each].mean_minutes):
        ours = parquet.get(carrier, nothing)
        lines.append(
            f"{carrier:<8}{ours.flights:>9,}{file[carrier].mean_minutes:>12.3f}{ours.mean_minutes:>14.3f}"
        )
    return "\n".join(lines)


def plot(file: DelaysByCarrier, parquet: DelaysByCarrier, path: Path) -> None:
    """A bar per carrier from Parquet, a mark on it from the file."""
    mpl.use("Agg")
    from matplotlib import pyplot  # its import settles the backend

    carriers = sorted(file.keys() & parquet.keys(), key=lambda each: file[each].mean_minutes)
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    means = [parquet[carrier].mean_minutes for carrier in carriers]
    axes.barh(carriers, means, alpha=0.6, label="through the cluster, Spark and Parquet")
    axes.plot(
        [file[carrier].mean_minutes for carrier in carriers],
        carriers,
        "k|",
        markersize=14,
        label="the original file",
    )
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel("mean arrival delay, minutes")
    axes.set_ylabel("carrier")
    axes.set_title(
        f"{sum(each.flights for each in parquet.values()):,} flights out of New York, 2013"
    )
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


@click.command()
@click.argument("archive", type=click.Path(exists=True, path_type=Path))
@click.argument("picture", type=click.Path(dir_okay=False, path_type=Path))
def main(archive: Path, picture: Path) -> None:
    """Compare the flights in ARCHIVE with the original file, print both, draw PICTURE; exit code 1
    if they differ.
    """
    from roquet.spark.session import session  # starts Java, which --help does not need

    expected = delays_in_file(flights())
    spark = session("flights report")
    try:
        found = delays_in(flights_in(spark, archive))
    finally:
        spark.stop()
    click.echo(table(expected, found))
    plot(expected, found, picture)
    wrong = differences(expected, found)
    for line in wrong:
        click.echo(line, err=True)
    click.echo("different" if wrong else "the same, to the minute")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
