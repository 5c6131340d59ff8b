-- Tokens generated a second by service (or by replica), in steps of two scrapes, and whether there was
-- more to do: with an empty queue a service makes as many tokens as it is asked for, and a low figure
-- says nothing. Where no queue is recorded, requests must run; where neither is, tokens must come.
WITH made AS (
    SELECT service, replica, ts_ns, num, den FROM role_point
    WHERE part = $1 AND role = 'generation_throughput' AND den > 0
),
scrape AS (
    SELECT ts_ns - lag(ts_ns) OVER (PARTITION BY service, replica ORDER BY ts_ns) AS dt_ns FROM made
),
step AS (
    SELECT 2 * CAST(median(dt_ns) AS BIGINT) AS ns FROM scrape WHERE dt_ns > 0
),
by_replica AS (
    SELECT service, replica, ts_ns // s.ns AS bin, sum(num) / sum(den) AS tokens
    FROM made, step AS s
    GROUP BY service, replica, bin
),
load AS (
    SELECT p.service, CASE WHEN $2 THEN p.replica ELSE '' END AS replica, p.ts_ns // s.ns AS bin,
        max(p.num / p.den) FILTER (p.role = 'waiting') AS waiting,
        max(p.num / p.den) FILTER (p.role = 'running') AS running
    FROM role_point AS p, step AS s
    WHERE p.part = $1 AND p.role IN ('waiting', 'running') AND p.den > 0
    GROUP BY ALL
),
rate AS (
    SELECT service, CASE WHEN $2 THEN replica ELSE '' END AS replica, bin, sum(tokens) AS tokens
    FROM by_replica
    GROUP BY ALL
)
SELECT r.service, r.replica, r.bin * s.ns AS start_ns, (r.bin + 1) * s.ns AS end_ns, r.tokens,
    coalesce(l.waiting > 0, l.running > 0, r.tokens > 0) AS is_loaded
FROM rate AS r
CROSS JOIN step AS s
LEFT JOIN load AS l ON l.service = r.service AND l.replica = r.replica AND l.bin = r.bin
ORDER BY r.service, r.replica, r.bin;
