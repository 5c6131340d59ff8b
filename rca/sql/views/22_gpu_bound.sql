-- What each device waited for or worked on, as shares of its span that sum to 1. Where several hold
-- at once, the first counts: computation, communication, copies, then, while the GPU is idle, a
-- thread waiting in a synchronising call, an operation on its way from its launch, and nothing.
CREATE VIEW gpu_bound AS
WITH extent AS (
    SELECT source_id, device, first_ns, last_ns, span_ns
    FROM gpu_breakdown
    WHERE span_ns > 0
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
        AND (e.device IS NULL OR e.device = s.device)
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
        sum(greatest(0, end_ns - greatest(start_ns, coalesce(end_1, start_ns))))
            FILTER (level <= 1) AS up_to_1,
        sum(greatest(0, end_ns - greatest(start_ns, coalesce(end_2, start_ns))))
            FILTER (level <= 2) AS up_to_2,
        sum(greatest(0, end_ns - greatest(start_ns, coalesce(end_3, start_ns))))
            FILTER (level <= 3) AS up_to_3,
        sum(greatest(0, end_ns - greatest(start_ns, coalesce(end_4, start_ns))))
            FILTER (level <= 4) AS up_to_4,
        sum(greatest(0, end_ns - greatest(start_ns, coalesce(end_5, start_ns)))) AS up_to_5
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
    JOIN covered AS c
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
