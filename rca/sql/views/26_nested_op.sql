-- How operations of the CPU lie in each other: on each thread, operators, calls, annotations, Python frames
-- and NVTX ranges that were pushed and popped. Of two that begin together the longer one holds the other,
-- of two equals the one that comes first in the file. A sweep over starts and ends, ends first.
CREATE VIEW nested_op AS
WITH stacked AS (
    SELECT source_id, pid, tid, id, start_ns, start_ns + dur_ns AS end_ns,
        row_number() OVER (PARTITION BY source_id, pid, tid ORDER BY start_ns, dur_ns DESC, id) AS place
    FROM cpu_op
    WHERE kind IN ('op', 'runtime', 'driver', 'annotation', 'python', 'nvtx', 'osrt')
        AND dur_ns >= 0
        AND is_free IS NOT true
), edge AS (
    SELECT source_id, pid, tid, start_ns AS at_ns, 1 AS step, place, id, end_ns
    FROM stacked
    UNION ALL
    SELECT source_id, pid, tid, end_ns, -1, place, NULL, NULL
    FROM stacked
    WHERE end_ns > start_ns
), swept AS (
    SELECT *,
        -- A mark opens nothing.
        sum(CASE WHEN end_ns = at_ns THEN 0 ELSE step END) OVER (
            PARTITION BY source_id, pid, tid ORDER BY at_ns, step, place
            ROWS UNBOUNDED PRECEDING) - CASE WHEN end_ns > at_ns THEN 1 ELSE 0 END AS depth
    FROM edge
), opened AS MATERIALIZED (
    SELECT source_id, coalesce(pid, -1) AS pid, coalesce(tid, -1) AS tid, id, place, at_ns, end_ns, depth
    FROM swept
    WHERE step = 1
), holder AS MATERIALIZED (
    FROM opened
    WHERE end_ns > at_ns
)
SELECT
    -- Source it comes from.
    o.source_id AS source_id,
    -- `id` in cpu_op.
    o.id AS id,
    -- Operations of its thread that are under way when it begins.
    CAST(o.depth AS INTEGER) AS depth,
    -- `id` of the one of them that began last; NULL at the top, and where operations cross so that it is not clear.
    CASE WHEN o.depth = 0 THEN NULL
         WHEN p.end_ns > o.at_ns THEN p.id
         WHEN q.end_ns > o.at_ns THEN q.id END AS parent
FROM opened AS o
ASOF LEFT JOIN holder AS p
    ON p.source_id = o.source_id
    AND p.pid = o.pid
    AND p.tid = o.tid
    AND p.depth = o.depth - 1
    AND p.place < o.place
-- A range that begins in a call and outlasts it (record_function begins in its __enter__) is one deeper than
-- what follows the call and lies in the range.
ASOF LEFT JOIN holder AS q
    ON q.source_id = o.source_id
    AND q.pid = o.pid
    AND q.tid = o.tid
    AND q.depth = o.depth
    AND q.place < o.place;
