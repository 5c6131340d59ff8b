-- Prometheus' increase(): what a counter gained in the `window_ns` before `at_ns`, both ends
-- included, resets undone, extrapolated to the ends of the window: by at most 1.1 mean sample
-- distances (else half of one), and not below the counter's zero. NULL with fewer than two samples.
-- Times are aligned ones.
CREATE MACRO prom_increase(of_series, at_ns, window_ns) AS (
    WITH point AS (
        SELECT s.ts_ns, s.value, lag(s.value) OVER (ORDER BY s.ts_ns) AS before
        FROM sample_aligned AS s
        WHERE s.series_id = of_series
            AND s.ts_ns BETWEEN at_ns - window_ns AND at_ns
            AND NOT isnan(s.value)
    ),
    gain AS (
        SELECT count(*) AS n,
            (max(ts_ns) - min(ts_ns)) / 1e9 AS sampled,
            (min(ts_ns) - (at_ns - window_ns)) / 1e9 AS ahead,
            (at_ns - max(ts_ns)) / 1e9 AS behind,
            arg_min(value, ts_ns) AS first_value,
            arg_max(value, ts_ns) - arg_min(value, ts_ns)
                + coalesce(sum(before) FILTER (WHERE value < before), 0) AS gained
        FROM point
    ),
    bounded AS (
        SELECT n, sampled, behind, gained,
            1.1 * sampled / (n - 1) AS far,
            0.5 * sampled / (n - 1) AS half,
            CASE WHEN gained > 0 AND first_value >= 0
                THEN least(ahead, sampled * first_value / gained)
                ELSE ahead END AS ahead
        FROM gain
        WHERE n > 1
    )
    SELECT gained / sampled * (
        sampled
        + CASE WHEN ahead < far THEN ahead ELSE half END
        + CASE WHEN behind < far THEN behind ELSE half END)
    FROM bounded
);

-- Prometheus' rate(): prom_increase for each second of the window.
CREATE MACRO prom_rate(of_series, at_ns, window_ns) AS
    prom_increase(of_series, at_ns, window_ns) / (window_ns / 1e9);

-- Upper bound of a bucket, from its label `le`.
CREATE MACRO prom_bound(le) AS TRY_CAST(replace(le, '+', '') AS DOUBLE);

-- Prometheus' histogram_quantile() over classic buckets: a list of {le: DOUBLE, count: DOUBLE} with
-- cumulative counts or rates, in any order. Linear inside a bucket, whose lower bound is 0 for the
-- first; the highest finite bound when the quantile lies above it. NaN without observations, without
-- a bucket to infinity or with fewer than two buckets.
CREATE MACRO prom_histogram_quantile(q, buckets) AS (
    WITH bucket AS (
        SELECT b.le AS le, sum(b.count) AS count
        FROM (SELECT unnest(buckets) AS b)
        WHERE b.le IS NOT NULL AND b.count IS NOT NULL
        GROUP BY b.le
    ),
    grown AS (
        SELECT le, max(count) OVER (ORDER BY le) AS count,
            row_number() OVER (ORDER BY le) AS i,
            count(*) OVER () AS n
        FROM bucket
    ),
    stepped AS (
        SELECT *, lag(le) OVER (ORDER BY i) AS low, lag(count) OVER (ORDER BY i) AS below,
            q * max(count) OVER () AS wanted
        FROM grown
    ),
    hit AS (
        SELECT * FROM stepped WHERE i = n OR count >= wanted ORDER BY i LIMIT 1
    )
    SELECT CASE
        WHEN q IS NULL THEN NULL
        WHEN isnan(q) THEN 'nan'::DOUBLE
        WHEN q < 0 THEN '-inf'::DOUBLE
        WHEN q > 1 THEN 'inf'::DOUBLE
        WHEN max(h.n) IS NULL OR max(h.n) < 2 THEN 'nan'::DOUBLE
        WHEN NOT (SELECT bool_or(isinf(le) AND le > 0) FROM grown) THEN 'nan'::DOUBLE
        WHEN (SELECT max(count) FROM grown) = 0 THEN 'nan'::DOUBLE
        WHEN any_value(h.i) = any_value(h.n) THEN any_value(h.low)
        WHEN any_value(h.i) = 1 AND any_value(h.le) <= 0 THEN any_value(h.le)
        WHEN any_value(h.count) = coalesce(any_value(h.below), 0) THEN 'nan'::DOUBLE
        ELSE coalesce(any_value(h.low), 0)
            + (any_value(h.le) - coalesce(any_value(h.low), 0))
            * ((any_value(h.wanted) - coalesce(any_value(h.below), 0))
                / (any_value(h.count) - coalesce(any_value(h.below), 0)))
        END
    FROM hit AS h
);

-- Prometheus' histogram_quantile() over a native histogram: its number of observations and its buckets as
-- histogram_sample has them (not cumulative, in any order), as they are or as rates. Linear inside a bucket
-- as Prometheus 2 has it; with `exponential := true` as Prometheus 3 does it, linear then only in a bucket
-- that holds zero. NaN without observations.
CREATE MACRO prom_native_quantile(q, of_count, buckets, exponential := false) AS (
    -- What is given first: names inside the arguments are the caller's.
    WITH asked AS (
        SELECT q AS part, of_count AS n
    ),
    bucket AS (
        SELECT b.low AS low, b.high AS high, b.count AS held
        FROM (SELECT unnest(buckets) AS b)
    ),
    -- Where all others lie on one side of zero, so does what the bucket around zero holds.
    bounded AS (
        SELECT held, low <= 0 AND high >= 0 AS holds_zero,
            CASE WHEN low < 0 AND high > 0 AND min(low) OVER () = low AND max(high) OVER () > high
                THEN 0 ELSE low END AS low,
            CASE WHEN low < 0 AND high > 0 AND max(high) OVER () = high AND min(low) OVER () < low
                THEN 0 ELSE high END AS high
        FROM bucket
    ),
    grown AS (
        SELECT *, sum(held) OVER (ORDER BY low, high) AS so_far,
            row_number() OVER (ORDER BY low DESC, high DESC) = 1 AS is_last
        FROM bounded
    ),
    hit AS (
        SELECT low, high, holds_zero, so_far < part * n AS is_beyond,
            (part * n - (least(so_far, n) - held)) / held AS share
        FROM grown
        CROSS JOIN asked
        WHERE is_last OR so_far >= part * n
        ORDER BY low, high
        LIMIT 1
    )
    SELECT CASE
        WHEN part IS NULL OR n IS NULL THEN NULL
        WHEN part < 0 THEN '-inf'::DOUBLE
        WHEN isnan(part) THEN 'nan'::DOUBLE
        WHEN part > 1 THEN 'inf'::DOUBLE
        WHEN n = 0 OR low IS NULL THEN 'nan'::DOUBLE
        WHEN is_beyond THEN high
        WHEN exponential AND NOT holds_zero AND low > 0
            THEN low * pow(high / low, share)
        WHEN exponential AND NOT holds_zero
            THEN high * pow(low / high, 1 - share)
        ELSE low + (high - low) * share
        END
    FROM asked
    LEFT JOIN hit ON true
);
