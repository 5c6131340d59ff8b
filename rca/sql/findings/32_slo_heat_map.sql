-- Share of requests within the limit by the batch they met and the rate at which requests came.
-- Cells of at least 20 requests; both sizes double from cell to cell.
WITH cell AS (
    SELECT is_slow, output_tokens, decode_ns,
        CAST(2 ** floor(log2(batch)) AS BIGINT) AS batch_from,
        2.0 ** floor(log2(rate_per_s)) AS rate_from
    FROM cohort_request
    WHERE is_slow IS NOT NULL AND batch >= 1 AND rate_per_s > 0
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
