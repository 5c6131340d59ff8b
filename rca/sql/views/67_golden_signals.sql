-- The golden signals in steps of fifteen seconds, by the end of requests. A P99 of the few requests
-- of one step would be their maximum: it is taken over the last thousand requests up to the step's
-- end, and its interval from their order alone. Of sampled traces it is biased, as are their counts
-- and shares: `bias` says so, and histogram_p99_ns has what the metrics tell.
CREATE VIEW golden_signals AS
WITH ended AS (
    SELECT part, end_ns, e2e_ns, status = 'error' AS is_failed
    FROM request
    WHERE start_ns IS NOT NULL
), pooled AS (
    SELECT *,
        count(*) OVER pool AS n_pool,
        quantile_disc(e2e_ns, 0.99) OVER pool AS p99_ns,
        -- Ranks 984 and 997 of a thousand: 95 % of the binomial around 990.
        quantile_disc(e2e_ns, 0.984) OVER pool AS p99_low_ns,
        quantile_disc(e2e_ns, 0.997) OVER pool AS p99_high_ns,
        min(end_ns) OVER pool AS since_ns
    FROM ended
    WINDOW pool AS (PARTITION BY part ORDER BY end_ns, e2e_ns ROWS BETWEEN 999 PRECEDING AND CURRENT ROW)
), latency AS (
    SELECT part, end_ns // 15000000000 AS step, count(*) AS requests, avg(e2e_ns) AS mean_ns,
        avg(CAST(is_failed AS INTEGER)) AS failed_share,
        arg_max({'n': n_pool, 'p99': p99_ns, 'low': p99_low_ns, 'high': p99_high_ns, 'since': since_ns},
            (end_ns, e2e_ns)) AS pool
    FROM pooled
    GROUP BY part, step
), state AS (
    SELECT part, ts_ns // 15000000000 AS step,
        sum(num) FILTER (role = 'prefix_hit_rate') / nullif(sum(den) FILTER (role = 'prefix_hit_rate'), 0)
            AS prefix_hit_rate,
        sum(num) FILTER (role = 'cache_hit_rate') / nullif(sum(den) FILTER (role = 'cache_hit_rate'), 0)
            AS cache_hit_rate,
        sum(num) FILTER (role = 'gpu_throttled') / nullif(sum(den) FILTER (role = 'gpu_throttled'), 0)
            AS throttled
    FROM role_value
    WHERE role IN ('prefix_hit_rate', 'cache_hit_rate', 'gpu_throttled')
    GROUP BY part, step
), bucket AS (
    SELECT part, role, up_to, ts_ns // 15000000000 AS step, sum(greatest(n, 0)) AS n
    FROM latency_count
    WHERE role IN ('e2e_latency', 'gateway_latency')
        -- One histogram tells: of the services where requests come in, else of the engines.
        AND (role = 'gateway_latency') = EXISTS (
            SELECT 1 FROM latency_count AS g
            WHERE g.role = 'gateway_latency' AND NOT isinf(g.up_to) AND g.service IN (SELECT service FROM request))
        AND (role = 'e2e_latency' OR service IN (SELECT service FROM request))
    GROUP BY part, role, up_to, step
), recent AS (
    -- The last five minutes, as a dashboard has them.
    SELECT s.part, s.step, b.up_to, sum(b.n) AS n
    FROM (SELECT DISTINCT part, step FROM bucket) AS s
    JOIN bucket AS b ON b.part = s.part AND b.step BETWEEN s.step - 19 AND s.step
    GROUP BY s.part, s.step, b.up_to
), cumulative AS (
    SELECT part, step, up_to, sum(n) OVER (PARTITION BY part, step ORDER BY up_to) AS count FROM recent
), counted AS (
    SELECT part, step, 1e9 * prom_histogram_quantile(0.99, buckets) AS p99_ns
    FROM (
        SELECT part, step, list({'le': up_to, 'count': CAST(count AS DOUBLE)}) AS buckets
        FROM cumulative
        GROUP BY part, step
    )
)
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- Begin of the step, ns since the Unix epoch.
    step * 15000000000 AS ts_ns,
    -- Requests that ended in it; NULL when none was traced.
    l.requests,
    -- Mean end-to-end time of these, ns.
    l.mean_ns,
    -- Share of these that failed, 0 to 1.
    l.failed_share,
    -- 99th percentile over the last thousand requests up to its end, ns; NULL with fewer.
    CASE WHEN l.pool.n = 1000 THEN l.pool.p99 END AS p99_ns,
    -- Lower end of its 95 % interval, ns; NULL with fewer than a thousand requests.
    CASE WHEN l.pool.n = 1000 THEN l.pool.low END AS p99_low_ns,
    -- Upper end of its 95 % interval, ns; NULL with fewer than a thousand requests.
    CASE WHEN l.pool.n = 1000 THEN l.pool.high END AS p99_high_ns,
    -- End of the earliest of those requests, ns since the Unix epoch; NULL with fewer than a thousand.
    CASE WHEN l.pool.n = 1000 THEN l.pool.since END AS p99_since_ns,
    -- Share of prompt tokens found in the prefix cache, 0 to 1; NULL when not recorded.
    s.prefix_hit_rate,
    -- Hit rate of caches outside of the engine, 0 to 1; NULL when not recorded.
    s.cache_hit_rate,
    -- Share of GPUs whose clocks heat or power holds down, 0 to 1; NULL when not recorded.
    s.throttled,
    -- 99th percentile over the last five minutes by the latency histogram, ns; NULL without buckets or requests.
    TRY_CAST(c.p99_ns AS BIGINT) AS histogram_p99_ns,
    -- 'sampled, biased' where requests, mean_ns, failed_share and p99_ns are of sampled traces; NULL where they are of all.
    CASE WHEN l.requests IS NOT NULL AND (SELECT bool_or(is_sampled) FROM cohort) THEN 'sampled, biased' END AS bias
FROM latency AS l
FULL JOIN state AS s USING (part, step)
FULL JOIN counted AS c USING (part, step);
