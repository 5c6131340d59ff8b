"""Columns of profiler events into rows of gpu_op, cpu_op and memory_event, and what is left out."""

from __future__ import annotations

from typing import Any

import polars as pl

from rca.parsers.durations import flaw_of

_ARGUMENTS = {  # keys of `args` whose columns would be taken for those of the event, or read ill
    "name": "given_name", "kind": "told_kind", "External id": "external_id",
    "Input Dims": "input_dims", "Input type": "input_types", "registers per thread": "registers",
    "shared memory": "shared_bytes", "graph id": "graph_id", "delta": "delta_bytes",
    "Total Allocated": "allocated_bytes", "Total Reserved": "reserved_bytes",
    "Device Id": "memory_device", "Device Type": "device_type", "Addr": "address",
}  # fmt: skip
_COLLECTIVES = {  # what collectives carry beside, where the recording has any
    "Collective name": "collective", "Process Group Name": "group_name", "Process Group ID": "group_id",
    "Process Group Description": "group_description", "Process Group Ranks": "group_ranks",
    "Group size": "group_size", "In msg nelems": "in_elements", "Out msg nelems": "out_elements", "Seq": "seq",
}  # fmt: skip
_PARTS = {"M": "metadata", "C": "counters"} | dict.fromkeys("BEben", "pairs")
_DEVICE_ROW = r"(-?[0-9]+)\s*$"  # 'stream 7' in old recordings, which have no args.stream
_COPY = "(Hto[DH]|Dto[DH]|PtoP)"
_IS_COLLECTIVE = (pl.col("name") == "record_param_comms") | pl.col("name").str.starts_with(
    "nccl"
)
_ts, _dur, _part = pl.col("ts_ns"), pl.col("dur_ns"), pl.col("part")


def events_of(columns: pl.DataFrame, base_ns: int, first_id: int) -> pl.DataFrame:
    """The events of a block in their order, judged.

    Args:
        columns: What torch_profiler.sql makes of the block.
        base_ns: Added to every time. Where it is 0, a time and duration of zero are a lost time.
        first_id: Number of the first event.

    Returns:
        `part` is what becomes of an event: a row of 'gpu' or 'cpu', a name ('metadata'), or why it
        is none; NULL for what is known and never a row, as the arrows between events are.
        `last_ns` is the time of an operation, sound or not, before base_ns.
    """
    arguments = columns["args"].struct.unnest().rename(_ARGUMENTS | _COLLECTIVES, strict=False)
    is_operation = (pl.col("ph") == "X") & pl.col("target").is_in(["gpu", "cpu"])
    sound = _ts.is_not_null()
    if base_ns == 0:
        sound &= (_ts != 0) | (_dur.fill_null(0) != 0)
    part = (
        pl.when(is_operation)
        .then(pl.when(sound).then("target").otherwise(pl.lit("untimed")))
        .when((pl.col("ph") == "X") & pl.col("target").is_null())
        .then(pl.lit("unknown"))
        .when(pl.col("ph").is_null())
        .then(pl.lit("no_phase"))
        .otherwise(pl.col("ph").replace_strict(_PARTS, default=None))
    )
    flat = columns.drop("args").hstack(arguments)
    return flat.with_columns(
        pl.int_range(first_id, first_id + flat.height, dtype=pl.Int64).alias("id"),
        part.alias("part"),
        pl.when(is_operation & sound).then(flaw_of(_dur)).alias("flaw"),
        pl.when(is_operation).then(_ts).alias("last_ns"),
        (_ts + base_ns).alias("start_ns"),
        (pl.col("name") == "[memory]").alias("is_memory"),
    )


def gpu_ops(events: pl.DataFrame) -> pl.DataFrame:
    """Rows of gpu_op."""
    wanted = (
        "id", "kind", "name", "device", "small_pid", "context", "stream", "device_row", "pid",
        "start_ns", "dur_ns", "correlation", "external_id", "bytes", "told_kind", "grid", "block",
        "registers", "shared_bytes", "graph_id", "flaw",
    )  # fmt: skip
    is_copy = pl.col("kind") == "memcpy"
    told = pl.col("name").str.extract(_COPY), pl.col("told_kind")
    row = pl.col("device_row").str.extract(_DEVICE_ROW)
    sizes = pl.col("grid", "block").str.strip_chars("[]").str.replace_all(" ", "", literal=True)
    return (
        events.select(_chosen("gpu", wanted))
        .with_columns(
            pl.coalesce(_small("device"), "small_pid").alias("device"),
            pl.coalesce(_whole("stream"), row.cast(pl.Int64, strict=False)).alias("stream"),
            _dur.fill_null(0),
            pl.when(is_copy | (pl.col("kind") == "memset")).then("bytes").alias("bytes"),
            pl.when(is_copy).then(pl.coalesce(told)).alias("copy_kind"),
            sizes,
            _small("registers"),
            pl.when(pl.col("graph_id") != 0).then("graph_id").alias("graph_id"),
        )
        .drop("small_pid", "device_row", "told_kind")
    )


def cpu_ops(events: pl.DataFrame) -> pl.DataFrame:
    """Rows of cpu_op; a duration that is damaged is 0, and the row says so."""
    wanted = (
        "id", "kind", "name", "pid", "tid", "start_ns", "dur_ns", "correlation", "external_id",
        "input_dims", "input_types", "flaw",
    )  # fmt: skip
    sound = pl.when(pl.col("flaw").is_null()).then(_dur).otherwise(0)
    return events.select(_chosen("cpu", wanted)).with_columns(sound.alias("dur_ns"))


def memory_events(events: pl.DataFrame) -> pl.DataFrame:
    """Rows of memory_event, whatever their phase; device -1 is the memory of the host."""
    is_row = pl.col("is_memory") & _ts.is_not_null() & pl.col("delta_bytes").is_not_null()
    on_host = pl.col("device_type") == 0
    return events.filter(is_row).select(
        pl.col("start_ns").alias("ts_ns"),
        pl.when(on_host)
        .then(-1)
        .otherwise(_small("memory_device").fill_null(-1))
        .alias("device"),
        "delta_bytes",
        "allocated_bytes",
        "reserved_bytes",
        _whole("address"),
    )


def collectives(events: pl.DataFrame) -> pl.DataFrame:
    """Rows of collective: operations of the GPU and the CPU that say what they exchange, with whom."""
    if "collective" not in events.columns:
        return pl.DataFrame()
    is_row = _part.is_in(["gpu", "cpu"]) & pl.col("collective").is_not_null()
    return events.filter(is_row).select(
        pl.col("id"),
        pl.col("collective").alias("name"),
        pl.coalesce("group_name", "group_id").alias("group_name"),
        "group_description",
        pl.col("group_ranks").str.replace_all(" ", "", literal=True),
        _small("group_size"),
        "dtype", "in_elements", "out_elements", "seq",
    )  # fmt: skip


def hardware_counters(events: pl.DataFrame, counters: pl.DataFrame) -> pl.DataFrame:
    """Rows of hardware_counter, of the ranges whose time is sound.

    Args:
        events: See `events_of`.
        counters: `n`, the number of the range in the block, `counter` and `value`.
    """
    sound = _ts.is_not_null() & (_dur >= 0)
    ranges = events.with_row_index("n").filter(sound).select(
        pl.col("n").cast(pl.Int64), "id", "name", "start_ns", "dur_ns"
    )  # fmt: skip
    return ranges.join(counters, "n", maintain_order="right").drop("n")


def names(events: pl.DataFrame) -> list[dict[str, Any]]:
    """What names processes and threads: what, pid, tid, name, label."""
    known = pl.col("name").is_in(["process_name", "process_labels", "thread_name"])
    told = events.filter((_part == "metadata") & known & pl.col("pid").is_not_null())
    return (
        told.group_by(pl.col("name").alias("what"), "pid", "tid", maintain_order=True)
        .agg(
            pl.col("given_name").drop_nulls().first().alias("name"),
            pl.col("labels").drop_nulls().first().alias("label"),
        )
        .to_dicts()
    )


def census(events: pl.DataFrame) -> dict[str, Any]:
    """What asks for another reading, and what is left out or odd: counts, and an example of each."""
    is_large = (
        pl.col("is_memory") & _whole("address").is_null() & pl.col("address").is_not_null()
    )
    is_old = (pl.col("target") != "none") & (pl.col("cat") != pl.col("cat").str.to_lowercase())
    facts = events.select(
        pl.col("last_ns").max(),
        pl.col("is_rough").any(),
        pl.col("is_far").any(),
        is_old.any().alias("is_old"),
        (pl.col("is_memory") & pl.col("delta_bytes").is_null()).any().alias("is_memory"),
        pl.col("flaw").count().alias("flawed"),
        ((_part == "gpu") & (pl.col("kind") == "accelerator")).sum().alias("accelerator"),
        is_large.sum().alias("large"),
        _IS_COLLECTIVE.any().alias("is_collective"),
        (pl.col("kind") == "hardware counters").any().alias("has_counters"),
    ).to_dicts()[0]
    counted = dict(events["part"].drop_nulls().value_counts().iter_rows())
    found = facts | counted
    return found | {"examples": _examples(events, found)}


def _examples(events: pl.DataFrame, found: dict[str, Any]) -> dict[str, str]:
    """The first event of what was found and is told with an example."""
    told = {
        "unknown": (_part == "unknown", pl.col("cat").fill_null("none")),
        "untimed": (_part == "untimed", pl.col("name")),
        "flawed": (pl.col("flaw").is_not_null(), pl.concat_str("name", pl.lit(": "), "flaw")),
    }
    first = {
        key: events.lazy().filter(is_one).select(text.first()).collect().item()
        for key, (is_one, text) in told.items()
        if found.get(key)
    }
    return {key: text for key, text in first.items() if text is not None}


def _chosen(part: str, columns: tuple[str, ...]) -> pl.Expr:
    """These columns of the events of a part, and no look at the others."""
    return pl.col(columns).filter(_part == part)


def _small(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Int32, strict=False)


def _whole(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Int64, strict=False)
