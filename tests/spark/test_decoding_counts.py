"""Dead letters in a table, and counted, in batches and in streams."""

from operator import itemgetter
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as sf

from hermes.errors import ConfigError
from hermes.spark.decoding import (
    DecodingCounts,
    count_dead_letters,
    decode_avro,
    decode_json,
    decode_pattern,
    decode_text,
    read_counts,
    split_dead_letters,
)

CLICK = {"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}]}


def values(spark: Any, *given: bytes) -> Any:
    rows = [("clicks", offset, value) for offset, value in enumerate(given)]
    return spark.createDataFrame(rows, "topic string, offset long, value binary")


def test_a_batch_is_split_and_counted_in_one_pass(spark: Any) -> None:
    seen = Observation()
    decoded = decode_json(values(spark, b'{"i":1}', b"{", b'{"i":2}', b"5", b"{}"), "i int")
    good, dead = split_dead_letters(count_dead_letters(decoded, seen))
    # Sorted here: for Spark's own sort 4.2 reads the rows twice, and counts them twice.
    assert sorted((row.asDict() for row in dead.collect()), key=itemgetter("offset")) == [
        {
            "topic": "clicks",
            "offset": 1,
            "value": b"{",
            "dead_letter": "not exactly one JSON object",
        },
        {
            "topic": "clicks",
            "offset": 3,
            "value": b"5",
            "dead_letter": "not exactly one JSON object",
        },
    ]
    assert read_counts(seen) == DecodingCounts(values=5, dead_letters=2)
    assert good.columns == ["topic", "offset", "value", "decoded"]
    assert sorted(row.offset for row in good.collect()) == [0, 2, 4]


def test_a_stream_is_split_and_counted(spark: Any, tmp_path: Path) -> None:
    """With all the decoders, one upon the other, so that each is seen to work in a stream."""
    folder, out = tmp_path / "in", tmp_path / "out"
    schema = "value binary, avro binary, text binary"
    good, bad = (b'{"page":"a"}', b"\x02a", b"a b"), (b"{}", b"\x02a", b"a b")
    spark.createDataFrame([good, bad, good], schema).coalesce(1).write.parquet(str(folder))
    others = [bad, (good[0], b"\x04a", b"a b"), (good[0], good[1], b"\xff"), good]
    spark.createDataFrame(others, schema).coalesce(1).write.mode("append").parquet(str(folder))
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    avro = decode_avro(stream, CLICK, column="avro", into="a", dead_letter="dead_a")
    words = "first string, second string"
    text = decode_pattern(
        avro, "(.) (.)", words, column="text", encoding="cp1252", into="t", dead_letter="dead_t"
    )
    counted = count_dead_letters(decode_json(text, "page string not null"), "clicks")
    counted = count_dead_letters(counted, "avro", dead_letter="dead_a")
    counted = count_dead_letters(counted, "text", dead_letter="dead_t")

    def write(batch: Any, number: int) -> None:
        for name, part in zip(("good", "dead"), split_dead_letters(batch), strict=True):
            part.write.mode("append").parquet(str(out / name))

    query = (
        counted.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.read.parquet(str(out / "good")).count() == 5
    dead = spark.read.parquet(str(out / "dead")).select("dead_letter").collect()
    assert [row[0] for row in dead] == ["page is required, but missing or null"] * 2
    # foreachBatch ran its batch once for each of the two writes; the counts are those of one, but
    # up to 4.2 of both.
    times = 2 if pyspark.__version__.startswith("4.2.") else 1
    assert read_counts(query, "clicks") == DecodingCounts(7 * times, 2 * times)
    expected = DecodingCounts(7 * times, times)
    assert read_counts(query, "avro") == read_counts(query, "text") == expected
    first = read_counts(query.recentProgress[0], "clicks")
    assert first in ((3 * times, times), (4 * times, times))
    with pytest.raises(ConfigError, match=r"^name: nothing is counted as 'x'; there are \['avro'"):
        read_counts(query, "x")


def test_a_watermark_outlasts_decoding(spark: Any) -> None:
    rate = spark.readStream.format("rate").load().withWatermark("timestamp", "1 minute")
    df = rate.select("timestamp", sf.lit("a").alias("value"))
    assert df.schema["timestamp"].metadata
    for decoded in (
        decode_json(df, "i int"),
        decode_avro(df, CLICK),
        decode_pattern(df, "(.)", "c string", encoding="cp1252"),
    ):
        good, dead = split_dead_letters(count_dead_letters(decoded, "clicks"))
        assert good.schema["timestamp"].metadata == df.schema["timestamp"].metadata
        assert dead.schema["timestamp"].metadata == df.schema["timestamp"].metadata


def test_wrong_arguments(spark: Any) -> None:
    df = values(spark)
    with pytest.raises(ConfigError, match=r"^dead_letter: there is no column 'dead_letter'; this"):
        count_dead_letters(df, "x")
    with pytest.raises(ConfigError, match=r"^into: there is no column 'decoded'; this is for what"):
        split_dead_letters(df)
    rate = spark.readStream.format("rate").load().select(sf.lit("a").alias("value"))
    with pytest.raises(ConfigError, match=r"^observation: a stream needs a name"):
        count_dead_letters(decode_text(rate), Observation())
