-- What samplers wrote on the spans of the traces that they kept, by part: Jaeger's sampler.type and
-- sampler.param, OpenTelemetry's sampling.probability and threshold (`th` of the trace state),
-- Honeycomb's SampleRate and the policies of the collector's tail sampler.
CREATE VIEW sampler_mark AS
WITH named AS (
    SELECT src.part, s.source_id, s.trace_id,
        s.attributes ->> '$."sampler.type"' AS type,
        s.attributes ->> '$."sampler.param"' AS param,
        TRY_CAST(s.attributes ->> '$."sampling.probability"' AS DOUBLE) AS probability,
        regexp_extract(s.attributes ->> '$."tracestate"', 'ot=(?:[^,]*;)?th:([0-9a-f]{1,14})', 1) AS threshold,
        1 / nullif(TRY_CAST(s.attributes ->> '$."SampleRate"' AS DOUBLE), 0) AS one_in,
        coalesce(s.attributes ->> '$."tailsampling.policy"',
            s.attributes ->> '$."tailsampling.composite_policy"') AS policy
    FROM span AS s
    JOIN source AS src ON src.id = s.source_id
    -- Most spans carry none of them, and JSON is slow to take apart.
    WHERE contains(CAST(s.attributes AS VARCHAR), 'ampl') OR contains(CAST(s.attributes AS VARCHAR), 'ot=')
),
mark AS (
    SELECT part, source_id, trace_id,
        least(
            CASE type WHEN 'probabilistic' THEN TRY_CAST(param AS DOUBLE)
                -- Jaeger's "always": true, 1 or 1.0; with anything else nothing would be here.
                WHEN 'const' THEN 1.0 END,
            probability,
            -- Traces below the threshold, out of 2^56, are dropped.
            CASE WHEN threshold <> '' THEN 1 - CAST('0x' || rpad(threshold, 14, '0') AS BIGINT) / 2.0 ** 56 END,
            one_in) AS kept,
        policy IS NOT NULL OR type IN ('ratelimiting', 'lowerbound') AS is_chosen
    FROM named
),
traced AS (
    SELECT part, source_id, trace_id, min(kept) AS kept, bool_or(is_chosen) AS is_chosen
    FROM mark
    WHERE (kept > 0 AND kept <= 1) OR is_chosen
    GROUP BY ALL
),
every AS (
    SELECT src.part, count(DISTINCT (s.source_id, s.trace_id)) AS traces
    FROM span AS s
    JOIN source AS src ON src.id = s.source_id
    GROUP BY src.part
)
SELECT
    -- 'incident' or 'baseline'.
    t.part,
    -- Traces of the part.
    any_value(e.traces) AS traces,
    -- Traces with a mark.
    count(*) AS marked,
    -- Share of the requests that the marks say was kept, 0 to 1; NULL where they do not say.
    count(kept) / sum(1 / kept) AS kept_share,
    -- Traces that were chosen by what they hold or by a limit on their number, so that no share is known.
    count(*) FILTER (is_chosen) AS chosen
FROM traced AS t
JOIN every AS e ON e.part = t.part
GROUP BY t.part;

-- How many observations of a latency took longer than a limit in seconds, by service and scrape,
-- from the buckets of its histogram. Where the limit lies inside of a bucket, its observations are
-- taken as spread evenly over it, and the bucket's bounds are told; none beyond the last bound.
CREATE MACRO latency_over(of_part, of_role, limit_s) AS TABLE (
    SELECT service, ts_ns,
        sum(greatest(n, 0)) AS n,
        -- In buckets that lie above the limit as a whole.
        sum(CASE WHEN coalesce(longer_than, 0) >= limit_s THEN greatest(n, 0) ELSE 0 END) AS n_surely,
        sum(greatest(n, 0) * CASE
            WHEN coalesce(longer_than, 0) >= limit_s THEN 1
            WHEN up_to <= limit_s OR isinf(up_to) THEN 0
            ELSE (up_to - limit_s) / (up_to - coalesce(longer_than, 0)) END) AS n_about,
        sum(CASE WHEN up_to > limit_s THEN greatest(n, 0) ELSE 0 END) AS n_at_most,
        -- The bucket that holds the limit; NULL where the limit is a bound.
        max(coalesce(longer_than, 0)) FILTER (coalesce(longer_than, 0) < limit_s AND up_to > limit_s) AS bucket_from,
        min(up_to) FILTER (coalesce(longer_than, 0) < limit_s AND up_to > limit_s) AS bucket_to
    FROM latency_count
    WHERE part = of_part AND role = of_role
    GROUP BY service, ts_ns
    HAVING bool_or(NOT isinf(up_to))
);
