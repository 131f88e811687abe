"""Record the classes that Spark and Iceberg load, so that later Sparks start from an archive of them.

One small job of the kind that Firn runs (read and write Iceberg tables, aggregate, join, sort), with the
JVM told to write a class-data-sharing archive at its exit. The archive fits one Java, one set of jars and
one class path; a JVM for which it does not fit ignores it and starts as it always did.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def representative_job(jars: list[Path], scratch: Path) -> None:
    """Touch what a lane touches: catalog, Iceberg's reader and writer, join, aggregate, sort."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    catalog = "spark.sql.catalog.lake"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.type", "jdbc")
        .config(f"{catalog}.uri", f"jdbc:sqlite:{scratch}/catalog.db")
        .config(f"{catalog}.jdbc.schema-version", "V1")
        .config(f"{catalog}.warehouse", f"file://{scratch}/warehouse")
        .getOrCreate()
    )
    spark.sql("CREATE NAMESPACE lake.warm")
    records = spark.range(10_000).select(
        F.col("id").alias("offset"),
        F.lit("topic").alias("topic"),
        (F.col("id") % 2).cast("int").alias("partition"),
        (F.col("id") % 100).cast("string").cast("binary").alias("key"),
        F.when(F.col("id") % 7 > 0, F.lit("value").cast("binary")).alias("value"),
        F.timestamp_millis("id").alias("timestamp"),
    )
    records.writeTo("lake.warm.records").partitionedBy(F.col("topic"), F.col("partition")).create()
    table = spark.table("lake.warm.records")
    newest = table.groupBy("topic", "partition", "key").agg(F.max("offset").alias("offset"))
    joined = table.join(F.broadcast(newest), ["topic", "partition", "offset"], "left_semi")
    joined.sort("topic", "partition", "offset").writeTo("lake.warm.records").overwrite(F.lit(True))
    spark.sql("ALTER TABLE lake.warm.records CREATE TAG inputs")
    spark.sql("SELECT count(*), min(offset) FROM lake.warm.records VERSION AS OF 'inputs'").collect()
    spark.stop()


def main() -> int:
    """Entry point: writes the archive, whole or not at all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jars", type=Path, help="folder of jars")
    parser.add_argument("archive", type=Path, help="where the archive goes")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    jars = sorted(arguments.jars.resolve().glob("*.jar"))
    if arguments.job:
        with tempfile.TemporaryDirectory() as scratch:
            representative_job(jars, Path(scratch))
        return 0
    unfinished = arguments.archive.with_suffix(".part")
    options = f"-XX:ArchiveClassesAtExit={unfinished.resolve()} -XX:+UseSerialGC -Xlog:disable"
    command = [sys.executable, __file__, "--job", str(arguments.jars), str(arguments.archive)]
    done = subprocess.run(
        command,
        env={**os.environ, "SPARK_SUBMIT_OPTS": options},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(f"firn: Spark does not start here. Its last lines:\n{done.stdout[-3000:]}", file=sys.stderr)
        return 1
    if unfinished.exists():
        unfinished.replace(arguments.archive)
    else:  # a JVM without class-data sharing works, only slower
        print("  this Java writes no archive: Spark will start a few seconds slower", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
