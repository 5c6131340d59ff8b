-- Requests that the latency histogram counted in the window; in the reference, as many seconds' worth.
SELECT
    sum(greatest(n, 0)) FILTER (part = 'baseline') * ($end_ns - $start_ns)
        / nullif(max(ts_ns) FILTER (part = 'baseline') - min(ts_ns) FILTER (part = 'baseline'), 0) AS reference,
    round(sum(greatest(n, 0)) FILTER (part = 'incident' AND ts_ns BETWEEN $start_ns AND $end_ns)) AS observed
FROM latency_count
WHERE role = $role AND service IN ($services);
