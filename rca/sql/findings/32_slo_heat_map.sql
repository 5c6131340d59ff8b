-- Share of requests within the limit by the batch they met and the rate at which requests came.
-- The batch is what metrics showed last before the arrival, within a minute, else how many of the
-- traced requests were in the engine. Cells of at least 20 requests.
WITH metric AS (
    SELECT part, ts_ns, sum(value) AS running
    FROM role_value
    WHERE role = 'running' AND value IS NOT NULL
    GROUP BY part, ts_ns
),
request AS (
    SELECT r.source_id, src.part, r.start_ns, r.e2e_ns, r.is_slow, r.output_tokens, r.decode_ns
    FROM cohort_request AS r
    JOIN source AS src ON src.id = r.source_id
    WHERE r.is_slow IS NOT NULL
),
-- Requests in flight: starts less ends so far.
event AS (
    SELECT part, start_ns AS ts_ns, 1 AS step FROM request
    UNION ALL
    SELECT part, start_ns + e2e_ns, -1 FROM request
),
flight AS (
    SELECT part, ts_ns, max(running) AS running
    FROM (
        SELECT part, ts_ns, step,
            sum(step) OVER (PARTITION BY part ORDER BY ts_ns, step DESC ROWS UNBOUNDED PRECEDING) AS running
        FROM event
    )
    WHERE step = 1
    GROUP BY part, ts_ns
),
placed AS (
    SELECT r.*, m.running AS measured, m.ts_ns AS measured_ns, f.running AS counted,
        count(*) OVER (PARTITION BY r.part ORDER BY r.start_ns
            RANGE BETWEEN 5000000000 PRECEDING AND 5000000000 FOLLOWING) / 10.0 AS rate
    FROM request AS r
    ASOF LEFT JOIN metric AS m ON m.part = r.part AND m.ts_ns <= r.start_ns
    LEFT JOIN flight AS f ON f.part = r.part AND f.ts_ns = r.start_ns
),
load AS (
    SELECT *,
        greatest(1, CASE WHEN start_ns - measured_ns <= 60000000000 THEN measured ELSE counted END) AS batch
    FROM placed
),
cell AS (
    SELECT *,
        CAST(2 ** floor(log2(batch)) AS BIGINT) AS batch_from,
        2.0 ** floor(log2(rate)) AS rate_from
    FROM load
)
SELECT batch_from,
    2 * batch_from AS batch_below,
    rate_from,
    2 * rate_from AS rate_below,
    count(*) AS n,
    avg(CAST(NOT is_slow AS INTEGER)) AS share_within,
    wilson(count(*) FILTER (NOT is_slow), count(*)).low AS within_low,
    wilson(count(*) FILTER (NOT is_slow), count(*)).high AS within_high,
    CASE WHEN count(*) >= 100
        THEN wilson(count(*) FILTER (NOT is_slow), count(*)).low >= 0.95 END AS is_safe,
    sum(output_tokens) FILTER (decode_ns > 0) / nullif(sum(decode_ns) / 1e9, 0) AS token_rate
FROM cell
GROUP BY batch_from, rate_from
HAVING count(*) >= 20
ORDER BY batch_from, rate_from;
