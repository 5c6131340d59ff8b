-- End-to-end time that 99 of 100 healthy requests keep, by the buckets of the latency histogram.
WITH bucket AS (
    SELECT up_to AS le, sum(sum(greatest(n, 0))) OVER (ORDER BY up_to) AS count
    FROM latency_count
    WHERE part = 'baseline' AND role = $role AND service IN ($services)
    GROUP BY up_to
),
listed AS (
    SELECT list({'le': le, 'count': CAST(count AS DOUBLE)}) AS buckets, max(count) AS n FROM bucket
)
SELECT TRY_CAST(1e9 * prom_histogram_quantile(0.99, buckets) AS BIGINT) AS limit_ns, coalesce(n, 0) AS n
FROM listed;
