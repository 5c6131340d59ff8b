-- Share of scrapes in which requests wait while seats and blocks of the KV cache are free.
-- $1: part; $2: usage from which on the cache counts as full; $3, $4: the window, ns since the Unix
-- epoch, which a baseline has not. No row where no configuration tells the number of seats.
WITH cap AS (
    SELECT s.part, max(TRY_CAST(c.value AS DOUBLE)) AS seats
    FROM config AS c
    JOIN source AS s ON s.id = c.source_id
    WHERE lower(replace(c.key, '-', '_')) IN ('max_num_seqs', 'max_running_requests')
    GROUP BY s.part
),
state AS (
    SELECT part, service, replica, ts_ns,
        max(num / nullif(den, 0)) FILTER (role = 'running') AS running,
        max(num / nullif(den, 0)) FILTER (role = 'waiting') AS waiting,
        max(num / nullif(den, 0)) FILTER (role = 'kv_usage') AS kv_usage
    FROM role_point
    WHERE role IN ('running', 'waiting', 'kv_usage')
    GROUP BY part, service, replica, ts_ns
)
SELECT avg(CAST(waiting >= 1 AND running < seats AND kv_usage < $2 AS INTEGER)) AS share
FROM state
JOIN cap USING (part)
WHERE part = $1 AND (part = 'baseline' OR ts_ns BETWEEN $3 AND $4)
HAVING count(running) > 0 AND count(waiting) > 0;
