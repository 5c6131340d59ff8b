-- Latency by prompt length, in bands by powers of two from 64 on; at least five requests a row.
-- Intervals of quantiles are those of ranks: 95 % of the binomial by its normal limit.
WITH banded AS (
    SELECT *,
        CASE WHEN input_tokens < 64 THEN 0 ELSE CAST(2 ** floor(log2(input_tokens)) AS BIGINT) END
            AS from_tokens
    FROM cohort_request
    WHERE input_tokens >= 0
),
band AS (
    SELECT side, from_tokens,
        greatest(2 * from_tokens, 64) AS below_tokens,
        count(*) AS n,
        list(ttft_ns ORDER BY ttft_ns) FILTER (ttft_ns IS NOT NULL) AS ttft,
        list(itl_ns ORDER BY itl_ns) FILTER (itl_ns IS NOT NULL) AS itl,
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
),
ranked AS (
    SELECT *,
        0.95 * len(ttft) AS ttft_middle, 1.96 * sqrt(0.95 * 0.05 * len(ttft)) AS ttft_margin,
        0.99 * len(itl) AS itl_middle, 1.96 * sqrt(0.99 * 0.01 * len(itl)) AS itl_margin
    FROM band
)
SELECT * EXCLUDE (ttft, itl, ttft_middle, ttft_margin, itl_middle, itl_margin),
    -- A rank beyond the last request has no value.
    CASE WHEN ttft_p95_ns IS NOT NULL THEN ttft[CAST(floor(ttft_middle - ttft_margin) AS BIGINT)] END AS ttft_p95_low_ns,
    CASE WHEN ttft_p95_ns IS NOT NULL THEN ttft[CAST(ceil(ttft_middle + ttft_margin) AS BIGINT) + 1] END AS ttft_p95_high_ns,
    CASE WHEN itl_p99_ns IS NOT NULL THEN itl[CAST(floor(itl_middle - itl_margin) AS BIGINT)] END AS itl_p99_low_ns,
    CASE WHEN itl_p99_ns IS NOT NULL THEN itl[CAST(ceil(itl_middle + itl_margin) AS BIGINT) + 1] END AS itl_p99_high_ns
FROM ranked
ORDER BY from_tokens, side;
