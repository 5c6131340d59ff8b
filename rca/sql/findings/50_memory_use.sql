-- Memory by replica and side, with its whole course. Totals stand in metrics of their own, or come from what is free.
WITH used AS (
    SELECT CASE role WHEN 'gpu_memory' THEN 'gpu' ELSE 'host' END AS kind, service, replica, part, ts_ns,
        sum(num / nullif(den, 0)) AS bytes
    FROM role_point
    WHERE role IN ('gpu_memory', 'host_memory')
    GROUP BY ALL
),
other AS (
    SELECT r.replica, src.part, s.name, max(v.value) AS value
    FROM series AS s
    JOIN series_role AS r ON r.series_id = s.id
    JOIN source AS src ON src.id = s.source_id
    JOIN sample AS v ON v.series_id = s.id
    WHERE regexp_matches(s.name, '(?i)(FB_FREE|FB_TOTAL|memory_total|spec_memory_limit_bytes|memory_limit_bytes)')
        AND isfinite(v.value) AND v.value > 0
    GROUP BY ALL
),
total AS (
    SELECT CASE WHEN regexp_matches(name, '(?i)FB_|gpu|nvidia_smi') THEN 'gpu' ELSE 'host' END AS kind,
        replica, part,
        max(value * CASE WHEN regexp_matches(name, '(?i)FB_|nvidia_smi') THEN 1048576 ELSE 1 END)
            FILTER (NOT regexp_matches(name, '(?i)FREE')) AS total_bytes,
        max(value * 1048576) FILTER (regexp_matches(name, '(?i)FREE')) AS free_bytes
    FROM other
    GROUP BY ALL
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
    SELECT kind, service, replica, part, ts_ns, bytes, NULL AS reserved FROM used WHERE bytes IS NOT NULL
    UNION ALL
    SELECT kind, service, replica, part, ts_ns, bytes, reserved FROM allocator
),
fitted AS (
    SELECT kind, service, replica, part, count(*) AS n,
        arg_min(bytes, ts_ns) AS first_bytes,
        arg_max(bytes, ts_ns) AS last_bytes,
        max(bytes) AS most_bytes,
        any_value(reserved) AS reserved,
        list(ts_ns ORDER BY ts_ns) AS times, list(bytes ORDER BY ts_ns) AS level
    FROM every
    GROUP BY kind, service, replica, part
)
SELECT f.* EXCLUDE (reserved),
    coalesce(f.reserved, t.total_bytes, t.free_bytes + f.first_bytes) AS total_bytes,
    f.most_bytes / nullif(coalesce(f.reserved, t.total_bytes, t.free_bytes + f.first_bytes), 0) AS used_share
FROM fitted AS f
LEFT JOIN total AS t ON t.kind = f.kind AND t.replica = f.replica AND t.part = f.part
ORDER BY f.kind, f.service, f.replica, f.part;
