-- What the GPUs of one side did, as shares of the devices' time that sum to 1: work by class, and
-- idle time by cause.
WITH device AS (
    SELECT b.source_id, b.device, b.span_ns
    FROM gpu_breakdown AS b
    JOIN source AS s ON s.id = b.source_id
    WHERE s.part = $1
        AND b.device IS NOT NULL
        AND b.span_ns > 0
),
part AS (
    SELECT b.source_id, b.device, b.bound AS state, b.ns
    FROM gpu_bound AS b
    WHERE b.bound IN ('compute', 'comm', 'copy')
    UNION ALL
    SELECT i.source_id, i.device, 'idle: ' || i.cause, i.ns
    FROM gpu_idle AS i
)
SELECT p.state, CAST(sum(p.ns) AS DOUBLE) / (SELECT sum(span_ns) FROM device) AS share
FROM part AS p
JOIN device AS d ON d.source_id = p.source_id AND d.device = p.device
GROUP BY p.state
ORDER BY p.state;
