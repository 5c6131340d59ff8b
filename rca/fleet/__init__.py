"""Recordings of many machines: read by many workers into Parquet shards, and asked as one case."""

from rca.fleet.reading import Member
from rca.fleet.shards import is_shards, open_shards
from rca.fleet.spread import Summary, ingest
from rca.fleet.straggling import stragglers

__all__ = ["Member", "Summary", "ingest", "is_shards", "open_shards", "stragglers"]
