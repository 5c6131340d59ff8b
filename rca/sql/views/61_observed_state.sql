-- Series that carry a state in their labels (builds, images, cache settings): how long each was seen.
CREATE VIEW info_seen AS
SELECT
    -- 'incident' or 'baseline'.
    src.part,
    -- The source it comes from.
    s.source_id,
    -- Metric name.
    s.name,
    -- All labels but the name.
    s.labels,
    -- First sample, ns since the Unix epoch, the source's clock corrected.
    min(v.ts_ns) AS first_ns,
    -- Last sample, ns since the Unix epoch, the source's clock corrected.
    max(v.ts_ns) AS last_ns
FROM series AS s
JOIN source AS src ON src.id = s.source_id
JOIN sample_aligned AS v ON v.series_id = s.id
WHERE regexp_matches(s.name, '(_build_info|cache_config_info|^python_info|^kube_pod_container_info)$')
    AND v.value > 0
GROUP BY src.part, s.source_id, s.id, s.name, s.labels;

-- Steps of gauges that stand for a wanted state or for the start of a process.
CREATE VIEW state_step AS
WITH point AS (
    SELECT src.part, s.source_id, s.name, s.labels, v.ts_ns, v.value,
        lag(v.value) OVER w AS before,
        src.first_ns + src.shift_ns AS begin_ns
    FROM series AS s
    JOIN source AS src ON src.id = s.source_id
    JOIN sample_aligned AS v ON v.series_id = s.id
    WHERE regexp_matches(s.name,
            '^(kube_[a-z]+_metadata_generation|kube_[a-z]+_(spec_)?replicas|process_start_time_seconds)$')
        AND isfinite(v.value)
    WINDOW w AS (PARTITION BY s.id ORDER BY v.ts_ns)
)
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- The source it comes from.
    source_id,
    -- Metric name.
    name,
    -- All labels but the name.
    labels,
    -- First sample with the new value, ns since the Unix epoch, the source's clock corrected.
    ts_ns,
    -- Value before; NULL for a series that begins later than its source.
    before,
    -- Value after.
    value AS after
FROM point
WHERE before <> value OR (before IS NULL AND ts_ns > begin_ns);

-- Versions that the spans of a service name, and how long each was seen.
CREATE VIEW version_seen AS
SELECT
    -- 'incident' or 'baseline'.
    src.part,
    -- The source it comes from.
    s.source_id,
    -- Service.
    s.service,
    -- Version (service.version).
    s.attributes ->> '$."resource.service.version"' AS version,
    -- First span, ns since the Unix epoch, the source's clock corrected.
    min(s.start_ns + src.shift_ns) AS first_ns,
    -- Last span, ns since the Unix epoch, the source's clock corrected.
    max(s.start_ns + src.shift_ns) AS last_ns
FROM span AS s
JOIN source AS src ON src.id = s.source_id
WHERE s.service IS NOT NULL AND s.start_ns IS NOT NULL AND s.flaw IS DISTINCT FROM 'absurd_duration'
    AND s.attributes ->> '$."resource.service.version"' IS NOT NULL
GROUP BY ALL;
