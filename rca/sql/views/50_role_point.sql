-- What each sample of a series adds to the roles that it carries. The value over any span of time
-- is sum(num) / sum(den).
CREATE VIEW role_sample AS
SELECT
    -- 'incident' or 'baseline'.
    src.part,
    -- Role, for example 'waiting'.
    r.role,
    -- Service, '' when unknown.
    r.service,
    -- Replica, '' when unknown.
    r.replica,
    -- Device; NULL when unknown.
    r.device,
    -- 'sum' or 'mean': how replicas make one value.
    r.combine,
    -- The same for the devices of a replica, 'max' and 'min' beside these.
    r.devices,
    -- How the sample is read, as in series_role.
    r.how,
    -- Time, ns since the Unix epoch, the source's clock corrected.
    c.ts_ns,
    -- What it adds to the numerator.
    CASE WHEN r.how IN ('rate', 'num') THEN c.delta * r.scale ELSE 0 END AS num,
    -- What it adds to the denominator.
    CASE r.how WHEN 'den' THEN c.delta WHEN 'rate' THEN c.dt_ns / 1e9 ELSE 0 END AS den
FROM series_role AS r
JOIN counter_rate AS c ON c.series_id = r.series_id
JOIN series AS s ON s.id = r.series_id
JOIN source AS src ON src.id = s.source_id
WHERE r.how IN ('rate', 'num', 'den')
    -- Loading code collects garbage as well: what a process collected while it started is no pause of its work.
    AND NOT (r.role = 'gc_full' AND c.restarted)
UNION ALL
SELECT src.part, r.role, r.service, r.replica, r.device, r.combine, r.devices, r.how,
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
WHERE r.how IN ('gauge', 'bits', 'gnum', 'gden') AND isfinite(v.value);

-- Values of every role, by service and time, the devices of each replica together.
CREATE VIEW role_point AS
-- Roles for which the worst of several devices counts: that device's own value.
WITH device AS (
    SELECT part, role, service, replica, combine, devices, ts_ns, sum(num) AS num, sum(den) AS den
    FROM role_sample
    WHERE devices IN ('max', 'min')
    GROUP BY part, role, service, replica, device, combine, devices, ts_ns
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
FROM role_sample
WHERE devices NOT IN ('max', 'min')
GROUP BY part, role, service, replica, ts_ns
UNION ALL
SELECT part, role, service, replica, any_value(combine), ts_ns,
    arg_max(num, num / nullif(den, 0) * CASE devices WHEN 'min' THEN -1 ELSE 1 END),
    arg_max(den, num / nullif(den, 0) * CASE devices WHEN 'min' THEN -1 ELSE 1 END)
FROM device
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
