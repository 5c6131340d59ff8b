-- Seconds with more invalidations than the median second by six of its standard deviations (Poisson),
-- and ten at least; neighbouring ones are one storm.
WITH told AS (
    SELECT s.start_ns AS ts_ns, s.source_id, s.name, s.attributes
    FROM span AS s
    WHERE s.start_ns IS NOT NULL AND s.flaw IS DISTINCT FROM 'absurd_duration'
        AND regexp_matches(CAST(s.attributes AS VARCHAR), '"cache\.(key|reason)"')
    UNION ALL
    SELECT e.ts_ns, e.source_id, e.name, e.attributes
    FROM span_event AS e
    WHERE regexp_matches(CAST(e.attributes AS VARCHAR), '"cache\.(key|reason)"')
),
event AS (
    SELECT t.ts_ns + src.shift_ns AS ts_ns, coalesce(t.attributes ->> '$."cache.reason"', '') AS reason,
        coalesce(t.attributes ->> '$."cache.key"', '') AS key
    FROM told AS t
    JOIN source AS src ON src.id = t.source_id
    WHERE src.part = 'incident'
        -- Lookups carry keys too: only what names a reason, or itself, invalidates.
        AND (t.attributes ->> '$."cache.reason"' IS NOT NULL
            OR regexp_matches(t.name, 'invalidat|evict|purge|flush', 'i'))
),
second AS (
    SELECT reason, ts_ns // 1000000000 AS second, count(*) AS n
    FROM event
    GROUP BY ALL
),
extent AS (
    SELECT min(first_ns + shift_ns) // 1000000000 AS first_s, max(last_ns + shift_ns) // 1000000000 AS last_s
    FROM source
    WHERE part = 'incident' AND kind = 'trace'
),
usual AS (
    -- Seconds without any count too.
    SELECT s.reason,
        CASE WHEN count(*) > (any_value(e.last_s) - any_value(e.first_s) + 1) / 2
            THEN median(s.n) ELSE sum(s.n) FILTER (s.n < 10) END AS middle,
        any_value(e.last_s) - any_value(e.first_s) + 1 AS seconds, count(*) AS busy
    FROM second AS s
    CROSS JOIN extent AS e
    GROUP BY s.reason
),
level AS (
    SELECT reason,
        coalesce(CASE WHEN busy > seconds / 2 THEN middle ELSE middle / seconds END, 0) AS per_s
    FROM usual
),
burst AS (
    SELECT s.reason, s.second, l.per_s,
        s.second - row_number() OVER (PARTITION BY s.reason ORDER BY s.second) AS stretch
    FROM second AS s
    JOIN level AS l ON l.reason = s.reason
    WHERE s.n >= 10 AND s.n > l.per_s + 6 * sqrt(greatest(l.per_s, 1))
),
storm AS (
    SELECT reason, stretch, min(second) AS first_s, max(second) AS last_s, any_value(per_s) AS usual_per_s
    FROM burst
    GROUP BY reason, stretch
)
SELECT s.reason, s.first_s * 1000000000 AS start_ns, (s.last_s + 1) * 1000000000 AS end_ns,
    count(*) AS n,
    count(DISTINCT e.key) AS n_keys,
    count(*) / (s.last_s - s.first_s + 1) AS per_s,
    any_value(s.usual_per_s) AS usual_per_s,
    mode(e.key) AS top_key
FROM storm AS s
JOIN event AS e ON e.reason = s.reason AND e.ts_ns // 1000000000 BETWEEN s.first_s AND s.last_s
GROUP BY s.reason, s.first_s, s.last_s
ORDER BY start_ns, s.reason;
