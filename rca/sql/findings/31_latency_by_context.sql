-- Latency by prompt length, in bands by powers of two from 64 on; at least five requests a row.
WITH banded AS (
    SELECT *,
        CASE WHEN input_tokens < 64 THEN 0 ELSE CAST(2 ** floor(log2(input_tokens)) AS BIGINT) END
            AS from_tokens
    FROM cohort_request
    WHERE input_tokens >= 0
)
SELECT side, from_tokens,
    greatest(2 * from_tokens, 64) AS below_tokens,
    count(*) AS n,
    median(ttft_ns) AS ttft_p50_ns,
    CASE WHEN count(ttft_ns) >= 40 THEN quantile_cont(ttft_ns, 0.95) END AS ttft_p95_ns,
    median(itl_ns) AS itl_p50_ns,
    CASE WHEN count(itl_ns) >= 200 THEN quantile_cont(itl_ns, 0.99) END AS itl_p99_ns,
    stddev_samp(itl_ns) AS itl_stddev_ns,
    avg(CAST(is_slow AS INTEGER)) AS share_slow,
    wilson(count(*) FILTER (is_slow), count(is_slow)).low AS share_low,
    wilson(count(*) FILTER (is_slow), count(is_slow)).high AS share_high
FROM banded
GROUP BY side, from_tokens
HAVING count(*) >= 5
ORDER BY from_tokens, side;
