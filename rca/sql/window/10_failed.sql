-- Requests that a service answered and those of them that failed, from scrape to scrape: by its counter
-- of answers, else by its latency histogram.
WITH failed AS (
    SELECT service, ts_ns, sum(num) AS failed
    FROM role_point
    WHERE part = $1 AND role = 'error_rate'
    GROUP BY service, ts_ns
),
answered AS (
    SELECT service, ts_ns, sum(num) AS n
    FROM role_point
    WHERE part = $1 AND role = 'arrival_rate'
    GROUP BY service, ts_ns
    UNION ALL
    SELECT service, ts_ns, sum(greatest(n, 0))
    FROM served_count
    WHERE part = $1
    GROUP BY service, role, ts_ns
)
SELECT a.service, a.ts_ns,
    greatest(max(a.n), coalesce(any_value(f.failed), 0)) AS n,
    coalesce(any_value(f.failed), 0) AS failed
FROM answered AS a
LEFT JOIN failed AS f ON f.service = a.service AND f.ts_ns = a.ts_ns
WHERE a.service IN (SELECT service FROM failed)
GROUP BY a.service, a.ts_ns
ORDER BY a.service, a.ts_ns;
