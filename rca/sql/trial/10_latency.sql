-- Latencies of one side's requests, and how much slower long answers come than short ones.
-- $1: part; $2, $3: first and last arrival, ns since the Unix epoch. One row; NULL where none is known.
WITH chosen AS (
    SELECT ttft_ns, itl_ns, engine_ns, e2e_ns, output_tokens
    FROM request
    WHERE part = $1 AND start_ns BETWEEN $2 AND $3
),
-- Longer answers than the median against the others; few requests tell nothing.
by_length AS (
    SELECT median(itl_ns) FILTER (is_long) / nullif(median(itl_ns) FILTER (NOT is_long), 0) AS ratio
    FROM (
        SELECT itl_ns, output_tokens > median(output_tokens) OVER () AS is_long
        FROM chosen
        WHERE itl_ns > 0
    )
    HAVING count(*) >= 20
)
SELECT
    -- Time to the first token, ns.
    quantile_cont(ttft_ns, 0.5) AS ttft_p50,
    quantile_cont(ttft_ns, 0.99) AS ttft_p99,
    -- Time between tokens, ns.
    quantile_cont(itl_ns, 0.5) AS itl_p50,
    quantile_cont(itl_ns, 0.99) AS itl_p99,
    -- Time in the engine, ns.
    quantile_cont(engine_ns, 0.5) AS e2e_p50,
    quantile_cont(engine_ns, 0.99) AS e2e_p99,
    -- Time of the whole request, ns.
    quantile_cont(e2e_ns, 0.5) AS request_p50,
    quantile_cont(e2e_ns, 0.99) AS request_p99,
    -- Time between tokens of long answers, as a multiple of that of short ones.
    (SELECT ratio FROM by_length) AS itl_by_length
FROM chosen;
