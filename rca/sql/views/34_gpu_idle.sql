-- Calls in which a thread waits for the GPU.
CREATE VIEW sync_call AS
SELECT
    -- Source it comes from.
    source_id,
    -- Number of the call in its source.
    id,
    -- Name of the call without the version that Nsight adds.
    regexp_replace(name, '_v[0-9]{4,5}$', '') AS name,
    -- Process id; NULL when unknown.
    pid,
    -- Thread id; NULL when unknown.
    tid,
    -- Start, ns since the Unix epoch.
    start_ns,
    -- End, ns since the Unix epoch.
    start_ns + dur_ns AS end_ns
FROM cpu_op
WHERE kind = 'sync'
    OR (kind IN ('runtime', 'driver') AND regexp_matches(name, 'Synchronize'));

-- Stretches in which requests were in flight, from any of their spans' roots; ns on the common clock.
CREATE VIEW in_flight AS
WITH reached AS (
    SELECT part, start_ns, end_ns,
        max(end_ns) OVER (PARTITION BY part ORDER BY start_ns, end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM request
    WHERE start_ns IS NOT NULL
), numbered AS (
    SELECT *, sum(CAST(before_ns IS NULL OR start_ns > before_ns AS INTEGER))
        OVER (PARTITION BY part ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING) AS stretch
    FROM reached
)
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- Start, ns since the Unix epoch.
    min(start_ns) AS start_ns,
    -- End, ns since the Unix epoch.
    max(end_ns) AS end_ns
FROM numbered
GROUP BY part, stretch;

-- Every stretch in which no stream of a device works, with what the operation that ends it waited for.
CREATE VIEW gpu_gap AS
WITH reached AS (
    SELECT source_id, device, id, start_ns,
        max(end_ns) OVER (PARTITION BY source_id, device ORDER BY start_ns, id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM gpu_work
), gap AS (
    SELECT source_id, device, id, before_ns AS start_ns, start_ns AS end_ns
    FROM reached
    WHERE start_ns > before_ns
), traced AS (
    -- Captures during which requests were traced at all: else nothing is known of them.
    SELECT s.id AS source_id, s.part, s.shift_ns
    FROM source AS s
    WHERE EXISTS (SELECT 1 FROM in_flight AS f
        WHERE f.part = s.part AND f.start_ns < s.last_ns + s.shift_ns AND f.end_ns > s.first_ns + s.shift_ns)
), served AS (
    SELECT g.source_id, g.device, g.id
    FROM gap AS g
    JOIN traced AS t ON t.source_id = g.source_id
    ASOF JOIN in_flight AS f ON f.part = t.part AND f.start_ns <= g.end_ns + t.shift_ns
    WHERE f.end_ns > g.start_ns + t.shift_ns
)
SELECT
    -- Source that recorded it.
    g.source_id,
    -- Device number; NULL when the source does not say.
    g.device,
    -- Operation that ends it, `id` in gpu_op.
    g.id AS next_op_id,
    -- Start, ns since the Unix epoch.
    g.start_ns,
    -- End, ns since the Unix epoch.
    g.end_ns,
    -- Start of the call that launched the next operation, ns since the Unix epoch; NULL when it is not in the source.
    l.call_ns,
    -- Whether a thread waited in a synchronising call as it began.
    coalesce(c.end_ns >= g.start_ns, false) AS is_synced,
    -- Whether a request was in flight; NULL when no request of that time was traced.
    CASE WHEN g.source_id IN (SELECT source_id FROM traced)
        THEN (g.source_id, g.id) IN (SELECT (source_id, id) FROM served) END AS is_served
FROM gap AS g
LEFT JOIN launch AS l ON l.source_id = g.source_id AND l.gpu_op_id = g.id
ASOF LEFT JOIN sync_call AS c ON c.source_id = g.source_id AND c.start_ns <= g.start_ns;

-- Idle time of each device by cause, on the union of its streams: rows add up to gpu_breakdown.idle_ns.
-- Of each gap up to 8 us are the launch's own latency; the rest is what kept the launch back.
CREATE VIEW gpu_idle AS
WITH split AS (
    SELECT source_id, device, end_ns - start_ns AS gap_ns,
        CASE
            WHEN is_served = false OR call_ns IS NULL THEN 0
            WHEN call_ns <= start_ns THEN least(end_ns - start_ns, 8000)
            ELSE greatest(0, least(end_ns - call_ns, end_ns - start_ns, 8000))
        END AS launch_ns,
        CASE
            WHEN is_served = false THEN 'no request'
            WHEN call_ns IS NULL THEN 'launch not recorded'
            WHEN call_ns <= start_ns THEN 'queued'
            WHEN is_synced THEN 'sync, then host'
            ELSE 'host'
        END AS cause
    FROM gpu_gap
), part AS (
    SELECT source_id, device, 'launch' AS cause, launch_ns AS ns FROM split
    UNION ALL
    SELECT source_id, device, cause, gap_ns - launch_ns FROM split
)
SELECT
    -- Source that recorded it.
    p.source_id,
    -- Device number; NULL when the source does not say.
    p.device,
    -- 'no request' (in flight), 'sync, then host' (a thread waited for the GPU and had to launch anew), 'launch' (up to 8 us a gap), 'queued' (launched before, held back on the device), 'host' (not launched yet), 'launch not recorded'.
    p.cause,
    -- Gaps with it.
    count(*) AS gaps,
    -- Time, ns.
    CAST(sum(p.ns) AS BIGINT) AS ns,
    -- Longest in one gap, ns.
    max(p.ns) AS longest_ns,
    -- Share of the device's span, 0 to 1.
    sum(p.ns) / any_value(b.span_ns) AS share
FROM part AS p
JOIN gpu_breakdown AS b
    ON b.source_id = p.source_id
    AND b.device IS NOT DISTINCT FROM p.device
WHERE p.ns > 0
GROUP BY p.source_id, p.device, p.cause;

-- Copies by direction, on the union of all streams of a device.
CREATE VIEW gpu_copy AS
WITH reached AS (
    SELECT source_id, device, coalesce(copy_kind, kind) AS copy_kind, bytes, start_ns,
        start_ns + dur_ns AS end_ns,
        max(start_ns + dur_ns) OVER (PARTITION BY source_id, device, coalesce(copy_kind, kind)
            ORDER BY start_ns, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM gpu_op
    WHERE flaw IS NULL AND kind IN ('memcpy', 'memset')
)
SELECT
    -- Source that recorded it.
    r.source_id,
    -- Device number; NULL when the source does not say.
    r.device,
    -- 'HtoD', 'DtoH', 'DtoD', 'PtoP', 'HtoH', the profiler's own word, or 'memset'.
    r.copy_kind,
    -- Copies.
    count(*) AS copies,
    -- Bytes; NULL when not recorded.
    CAST(sum(r.bytes) AS BIGINT) AS bytes,
    -- Time in which at least one of them ran, ns.
    CAST(sum(beyond(r.start_ns, r.end_ns, r.before_ns)) AS BIGINT) AS ns,
    -- Share of the device's span, 0 to 1.
    sum(beyond(r.start_ns, r.end_ns, r.before_ns)) / any_value(b.span_ns) AS share
FROM reached AS r
JOIN gpu_breakdown AS b
    ON b.source_id = r.source_id
    AND b.device IS NOT DISTINCT FROM r.device
GROUP BY r.source_id, r.device, r.copy_kind;
