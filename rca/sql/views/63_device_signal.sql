-- Roles by device, where several devices of a service carry them; same form as signal_value, so that one ill
-- device among many is not averaged away.
CREATE VIEW device_signal AS
WITH several AS (
    SELECT service, role
    FROM series_role
    WHERE device IS NOT NULL
    GROUP BY service, role
    HAVING count(DISTINCT device) > 1
),
-- A device is unique: which pod its exporter ran in does not matter. Series of one device add up as those of a
-- replica do.
value AS (
    SELECT v.part, v.role, v.service, v.device, v.ts_ns, sum(v.num) AS num,
        CASE
            WHEN bool_or(v.how IN ('num', 'den', 'gnum', 'gden')) OR any_value(v.combine) = 'mean'
                THEN sum(v.den)
            ELSE max(v.den)
        END AS den
    FROM role_sample AS v
    JOIN several AS s ON s.service = v.service AND s.role = v.role
    WHERE v.device IS NOT NULL
    GROUP BY v.part, v.role, v.service, v.device, v.ts_ns
),
growth AS (
    SELECT part, 'gpu_memory_growth' AS role, service, device, ts_ns,
        num / nullif(den, 0) - lag(num / nullif(den, 0)) OVER w AS num,
        (ts_ns - lag(ts_ns) OVER w) / 1e9 AS den
    FROM value
    WHERE role = 'gpu_memory'
    WINDOW w AS (PARTITION BY part, service, device ORDER BY ts_ns)
)
SELECT
    -- Always 'metrics'.
    'metrics' AS source,
    -- Role, for example 'sm_clock'.
    role,
    -- Service, '' when unknown.
    service,
    -- Device.
    device AS subject,
    -- 'incident' or 'baseline'.
    part,
    -- Time, ns since the Unix epoch, the source's clock corrected.
    ts_ns,
    -- Numerator.
    num,
    -- Denominator.
    den
FROM value
WHERE den > 0
UNION ALL
SELECT 'metrics', role, service, device, part, ts_ns, num, den FROM growth WHERE num IS NOT NULL AND den > 0;
