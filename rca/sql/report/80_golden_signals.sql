-- The golden signals of all requests on both sides, from the steps of the view. $1 and $2 bound the window, ns;
-- before $3 the same recordings are healthy, which counts where no baseline has requests.
WITH sided AS (
    SELECT *,
        CASE WHEN part = 'incident' AND ts_ns BETWEEN $1 - 14999999999 AND $2 THEN 'window'
             WHEN part = 'baseline' THEN 'baseline'
             WHEN ts_ns < $3 - 15000000000 THEN 'lead-in' END AS side
    FROM golden_signals
), summed AS (
    SELECT side,
        sum(requests) AS requests,
        sum(requests * mean_ns) / sum(requests) AS mean_ns,
        sum(requests * failed_share) / sum(requests) AS failed_share,
        -- Steps without a request count: nothing came.
        sum(requests) / ((max(ts_ns) FILTER (requests > 0) - min(ts_ns) FILTER (requests > 0)) / 1e9 + 15) AS per_s,
        -- Of a window only what lies within it altogether.
        arg_max({'p99': p99_ns, 'low': p99_low_ns, 'high': p99_high_ns}, ts_ns)
            FILTER (p99_ns IS NOT NULL AND (side <> 'window' OR p99_since_ns >= $1)) AS p99,
        avg(prefix_hit_rate) AS prefix_hit_rate,
        avg(cache_hit_rate) AS cache_hit_rate,
        avg(throttled) AS throttled
    FROM sided
    WHERE side IS NOT NULL
    GROUP BY side
)
SELECT side = 'window' AS is_window, requests, mean_ns, failed_share, per_s, p99.p99, p99.low, p99.high,
    prefix_hit_rate, cache_hit_rate, throttled
FROM summed
WHERE side <> 'lead-in' OR NOT EXISTS (FROM summed WHERE side = 'baseline' AND requests > 0)
ORDER BY is_window, side
