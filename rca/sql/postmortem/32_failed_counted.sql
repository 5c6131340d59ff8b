-- Share of the requests that failed, by the counters of the services; nothing where none counts failures.
WITH answered AS (
    SELECT part, ts_ns, sum(greatest(n, 0)) AS n
    FROM latency_count
    WHERE role = $role AND service IN ($services)
    GROUP BY part, ts_ns
),
failed AS (
    SELECT part, ts_ns, sum(num) AS failed
    FROM role_point
    WHERE role = 'error_rate' AND service IN ($services)
    GROUP BY part, ts_ns
)
SELECT
    sum(coalesce(f.failed, 0)) FILTER (a.part = 'baseline')
        / nullif(sum(greatest(a.n, coalesce(f.failed, 0))) FILTER (a.part = 'baseline'), 0) AS reference,
    sum(coalesce(f.failed, 0)) FILTER (a.part = 'incident' AND a.ts_ns BETWEEN $start_ns AND $end_ns)
        / nullif(sum(greatest(a.n, coalesce(f.failed, 0)))
            FILTER (a.part = 'incident' AND a.ts_ns BETWEEN $start_ns AND $end_ns), 0) AS observed
FROM answered AS a
LEFT JOIN failed AS f ON f.part = a.part AND f.ts_ns = a.ts_ns
WHERE EXISTS (SELECT 1 FROM failed WHERE part = 'incident');
