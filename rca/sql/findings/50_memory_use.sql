-- Memory by replica and side, with its whole course; of GPUs all devices of a replica together, and each by itself
-- where there are several. Totals stand in metrics of their own, or come from what is used, free and reserved at
-- the same time.
WITH used AS (
    SELECT CASE role WHEN 'gpu_memory' THEN 'gpu' ELSE 'host' END AS kind, service, replica, device, part, ts_ns,
        sum(num) / nullif(max(den), 0) AS bytes
    FROM role_sample
    WHERE role IN ('gpu_memory', 'host_memory')
    GROUP BY ALL
    HAVING bytes IS NOT NULL
),
other AS (
    SELECT CASE WHEN regexp_matches(s.name, '(?i)FB_|gpu|nvidia_smi') THEN 'gpu' ELSE 'host' END AS kind,
        r.replica, r.device, src.part, v.ts_ns + src.shift_ns AS ts_ns,
        CASE
            WHEN regexp_matches(s.name, '(?i)free') THEN 'free'
            WHEN regexp_matches(s.name, '(?i)reserved') THEN 'reserved'
            ELSE 'total'
        END AS what,
        max(v.value * CASE WHEN regexp_matches(s.name, '(?i)FB_|nvidia_smi') THEN 1048576 ELSE 1 END) AS bytes
    FROM series AS s
    JOIN series_role AS r ON r.series_id = s.id
    JOIN source AS src ON src.id = s.source_id
    JOIN sample AS v ON v.series_id = s.id
    WHERE regexp_matches(s.name, '(?i)(FB_(FREE|RESERVED|TOTAL)$|smi_memory_(free|reserved)$|memory_total|memory_limit_bytes)')
        AND isfinite(v.value) AND v.value > 0
    GROUP BY ALL
),
-- What a device has room for at one time, beside what is used; what a driver keeps for itself is no room.
room AS (
    SELECT kind, replica, device, part, ts_ns, max(bytes) FILTER (what = 'free') AS free,
        coalesce(max(bytes) FILTER (what = 'reserved'), 0) AS reserved
    FROM other
    WHERE what <> 'total'
    GROUP BY ALL
    HAVING free IS NOT NULL
),
capacity AS (
    SELECT u.kind, u.service, u.replica, u.device, u.part,
        coalesce(
            any_value(t.bytes),
            max(u.bytes + r.free + r.reserved),
            any_value(m.free) + arg_min(u.bytes, u.ts_ns)) AS total_bytes
    FROM used AS u
    LEFT JOIN (SELECT kind, replica, device, part, max(bytes) AS bytes FROM other WHERE what = 'total' GROUP BY ALL) AS t
        ON t.kind = u.kind AND t.replica = u.replica AND t.device IS NOT DISTINCT FROM u.device AND t.part = u.part
    LEFT JOIN room AS r
        ON r.kind = u.kind AND r.replica = u.replica AND r.device IS NOT DISTINCT FROM u.device AND r.part = u.part
        AND r.ts_ns = u.ts_ns
    LEFT JOIN (SELECT kind, replica, device, part, max(free) AS free FROM room GROUP BY ALL) AS m
        ON m.kind = u.kind AND m.replica = u.replica AND m.device IS NOT DISTINCT FROM u.device AND m.part = u.part
    GROUP BY u.kind, u.service, u.replica, u.device, u.part
),
-- The total of several devices is known only when that of each is.
size AS (
    SELECT kind, service, replica, part, count(DISTINCT device) AS devices,
        CASE WHEN count(total_bytes) = count(*) THEN sum(total_bytes) END AS total_bytes
    FROM capacity
    GROUP BY ALL
),
-- Devices of one replica may be read a little one after the other: each counts with its last value, at most five
-- minutes old, at the times from which on all have one.
together AS (
    SELECT t.kind, t.service, t.replica, t.part, t.ts_ns, sum(u.bytes) AS bytes
    FROM (
        SELECT DISTINCT u.kind, u.service, u.replica, c.device, u.part, u.ts_ns
        FROM used AS u
        JOIN size AS z USING (kind, service, replica, part)
        JOIN capacity AS c USING (kind, service, replica, part)
        WHERE z.devices > 1
    ) AS t
    ASOF JOIN used AS u
        ON u.kind = t.kind AND u.service = t.service AND u.replica = t.replica AND u.part = t.part
        AND u.device = t.device AND t.ts_ns >= u.ts_ns
    JOIN size AS z ON z.kind = t.kind AND z.service = t.service AND z.replica = t.replica AND z.part = t.part
    WHERE t.ts_ns - u.ts_ns <= 300000000000
    GROUP BY t.kind, t.service, t.replica, t.part, t.ts_ns
    HAVING count(*) = any_value(z.devices)
),
allocator AS (
    SELECT 'allocator' AS kind, '' AS service, 'device ' || m.device || ' of source ' || m.source_id AS replica,
        src.part, m.ts_ns, CAST(m.allocated_bytes AS DOUBLE) AS bytes,
        max_by(m.reserved_bytes, m.allocated_bytes) OVER (PARTITION BY m.source_id, m.device) AS reserved
    FROM memory_event AS m
    JOIN source AS src ON src.id = m.source_id
    WHERE m.allocated_bytes IS NOT NULL AND m.device >= 0
),
every AS (
    SELECT u.kind, u.service, u.replica, u.device, u.part, u.ts_ns, u.bytes, c.total_bytes AS total,
        CASE WHEN u.device IS NOT NULL THEN 1 END AS devices
    FROM used AS u
    JOIN capacity AS c
        ON c.kind = u.kind AND c.service = u.service AND c.replica = u.replica AND c.part = u.part
        AND c.device IS NOT DISTINCT FROM u.device
    UNION ALL
    SELECT t.kind, t.service, t.replica, NULL, t.part, t.ts_ns, t.bytes, z.total_bytes, z.devices
    FROM together AS t
    JOIN size AS z USING (kind, service, replica, part)
    UNION ALL
    SELECT kind, service, replica, NULL, part, ts_ns, bytes, reserved, NULL FROM allocator
)
SELECT kind, service, replica, device, devices, part, count(*) AS n,
    arg_min(bytes, ts_ns) AS first_bytes,
    arg_max(bytes, ts_ns) AS last_bytes,
    max(bytes) AS most_bytes,
    list(ts_ns ORDER BY ts_ns) AS times, list(bytes ORDER BY ts_ns) AS level,
    any_value(total) AS total_bytes,
    max(bytes) / nullif(any_value(total), 0) AS used_share
FROM every
GROUP BY kind, service, replica, device, devices, part
ORDER BY kind, service, replica, device NULLS FIRST, part;
