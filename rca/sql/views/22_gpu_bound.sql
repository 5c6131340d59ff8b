-- What each device waited for or worked on, as shares of its span that sum to 1. Where several hold
-- at once, the first counts: computation, communication, copies, then, while the GPU is idle, a
-- thread waiting in a synchronising call, an operation on its way from its launch, and nothing.
CREATE VIEW gpu_bound AS
WITH device_extent AS (
    SELECT source_id, device, min(start_ns) AS first_ns, max(end_ns) AS last_ns
    FROM gpu_work
    GROUP BY source_id, device
), extent AS (
    SELECT source_id, device, false AS is_total, first_ns, last_ns, last_ns - first_ns AS span_ns
    FROM device_extent
    WHERE device IS NOT NULL
        AND last_ns > first_ns
    UNION ALL
    SELECT source_id, NULL, true, min(first_ns), max(last_ns), max(last_ns) - min(first_ns)
    FROM device_extent
    GROUP BY source_id
    HAVING max(last_ns) > min(first_ns)
), launcher AS (
    SELECT DISTINCT source_id, device, pid FROM gpu_work
), waiting AS (
    SELECT source_id, pid, start_ns, start_ns + dur_ns AS end_ns
    FROM cpu_op
    WHERE kind = 'sync'
        OR (kind IN ('runtime', 'driver') AND regexp_matches(name, 'Synchronize'))
), state AS (
    SELECT source_id, device, start_ns, end_ns,
        CASE class WHEN 'compute' THEN 1 WHEN 'comm' THEN 2 ELSE 3 END AS level
    FROM gpu_work
    UNION ALL
    -- Nsight tells whose device it is; a profiler trace is one process and all of it counts.
    SELECT w.source_id, l.device, w.start_ns, w.end_ns, 4
    FROM waiting AS w
    JOIN source AS s ON s.id = w.source_id
    JOIN launcher AS l
        ON l.source_id = w.source_id
        AND (s.kind <> 'nsys' OR l.pid = w.pid)
    UNION ALL
    SELECT source_id, device, call_ns, call_ns + delay_ns, 5
    FROM launch
    WHERE delay_ns > 0
), clipped AS (
    SELECT e.source_id, e.device, s.level,
        greatest(s.start_ns, e.first_ns) AS start_ns,
        least(s.end_ns, e.last_ns) AS end_ns
    FROM state AS s
    JOIN extent AS e
        ON e.source_id = s.source_id
        AND (e.is_total OR e.device = s.device)
    WHERE s.end_ns > e.first_ns
        AND s.start_ns < e.last_ns
), reached AS (
    SELECT *,
        max(CASE WHEN level <= 1 THEN end_ns END) OVER so_far AS end_1,
        max(CASE WHEN level <= 2 THEN end_ns END) OVER so_far AS end_2,
        max(CASE WHEN level <= 3 THEN end_ns END) OVER so_far AS end_3,
        max(CASE WHEN level <= 4 THEN end_ns END) OVER so_far AS end_4,
        max(end_ns) OVER so_far AS end_5
    FROM clipped
    WINDOW so_far AS (
        PARTITION BY source_id, device ORDER BY start_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), covered AS (
    SELECT source_id, device,
        sum(beyond(start_ns, end_ns, end_1))
            FILTER (level <= 1) AS up_to_1,
        sum(beyond(start_ns, end_ns, end_2))
            FILTER (level <= 2) AS up_to_2,
        sum(beyond(start_ns, end_ns, end_3))
            FILTER (level <= 3) AS up_to_3,
        sum(beyond(start_ns, end_ns, end_4))
            FILTER (level <= 4) AS up_to_4,
        sum(beyond(start_ns, end_ns, end_5)) AS up_to_5
    FROM reached
    GROUP BY source_id, device
), share_of AS (
    SELECT e.source_id, e.device, e.span_ns,
        unnest([
            {'bound': 'compute', 'ns': coalesce(c.up_to_1, 0)},
            {'bound': 'comm', 'ns': coalesce(c.up_to_2, 0) - coalesce(c.up_to_1, 0)},
            {'bound': 'copy', 'ns': coalesce(c.up_to_3, 0) - coalesce(c.up_to_2, 0)},
            {'bound': 'sync', 'ns': coalesce(c.up_to_4, 0) - coalesce(c.up_to_3, 0)},
            {'bound': 'launch', 'ns': coalesce(c.up_to_5, 0) - coalesce(c.up_to_4, 0)},
            {'bound': 'idle', 'ns': e.span_ns - coalesce(c.up_to_5, 0)}]) AS part
    FROM extent AS e
    LEFT JOIN covered AS c  -- nothing covers a moment where all work is of no length
        ON c.source_id = e.source_id
        AND c.device IS NOT DISTINCT FROM e.device
)
SELECT
    -- Source that recorded it.
    source_id,
    -- Device number; NULL in the rows for all devices together.
    device,
    -- 'compute', 'comm', 'copy', 'sync', 'launch' or 'idle'.
    part.bound AS bound,
    -- Time, ns.
    CAST(part.ns AS BIGINT) AS ns,
    -- Share of the span, 0 to 1.
    part.ns / span_ns AS share
FROM share_of;
