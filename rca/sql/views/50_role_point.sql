-- Values of every role, by service and time, all replicas together. The value is num / den:
-- sums of num over sums of den give exact means over any span of time.
CREATE VIEW role_point AS
WITH point AS (
    SELECT r.role, r.service, r.replica, r.combine, r.how, src.part, src.id AS source_id,
        c.ts_ns,
        CASE WHEN r.how IN ('rate', 'num') THEN c.delta * r.scale ELSE 0 END AS num,
        CASE r.how WHEN 'den' THEN c.delta WHEN 'rate' THEN c.dt_ns / 1e9 ELSE 0 END AS den
    FROM series_role AS r
    JOIN counter_rate AS c ON c.series_id = r.series_id
    JOIN series AS s ON s.id = r.series_id
    JOIN source AS src ON src.id = s.source_id
    WHERE r.how IN ('rate', 'num', 'den')
        -- Loading code collects garbage as well: what a process collected while it started is no pause of its work.
        AND NOT (r.role = 'gc_full' AND c.restarted)
    UNION ALL
    SELECT r.role, r.service, r.replica, r.combine, r.how, src.part, src.id,
        v.ts_ns + src.shift_ns,
        CASE r.how
            WHEN 'bits' THEN CAST((TRY_CAST(v.value AS BIGINT) & CAST(r.scale AS BIGINT)) <> 0 AS INTEGER)
            WHEN 'gden' THEN 0
            ELSE v.value * r.scale
        END,
        CASE r.how WHEN 'gden' THEN v.value WHEN 'gnum' THEN 0 ELSE 1 END
    FROM series_role AS r
    JOIN sample AS v ON v.series_id = r.series_id
    JOIN series AS s ON s.id = r.series_id
    JOIN source AS src ON src.id = s.source_id
    WHERE r.how IN ('gauge', 'bits', 'gnum', 'gden') AND isfinite(v.value)
)
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- Role, for example 'waiting'.
    role,
    -- Service, '' when unknown.
    service,
    -- Replica, '' when unknown.
    replica,
    -- 'sum' or 'mean': how replicas make one value.
    any_value(combine) AS combine,
    -- Time, ns since the Unix epoch, the source's clock corrected.
    ts_ns,
    -- Numerator of the value.
    sum(num) AS num,
    -- Denominator of the value: observations, seconds or series.
    CASE
        WHEN bool_or(how IN ('num', 'den', 'gnum', 'gden')) OR any_value(combine) = 'mean'
            THEN sum(den)
        ELSE max(den)
    END AS den
FROM point
GROUP BY part, role, service, replica, ts_ns;

-- The same, replicas put together.
CREATE VIEW role_value AS
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- Role, for example 'waiting'.
    role,
    -- Service, '' when unknown.
    service,
    -- Time, ns since the Unix epoch, the source's clock corrected.
    ts_ns,
    -- Numerator of the value.
    sum(num) AS num,
    -- Denominator of the value: observations, seconds or series.
    CASE WHEN any_value(combine) = 'mean' THEN sum(den) ELSE max(den) END AS den,
    -- The value; NULL when there was nothing to observe.
    sum(num) / nullif(CASE WHEN any_value(combine) = 'mean' THEN sum(den) ELSE max(den) END, 0) AS value
FROM role_point
GROUP BY part, role, service, ts_ns;
