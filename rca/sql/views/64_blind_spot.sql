-- Spans that lost their way, by service: those whose parent is not there, and roots of a service
-- whose spans have a parent elsewhere. Start-up work of a process (internal roots) is not meant.
CREATE VIEW orphan_span AS
WITH placed AS (
    SELECT coalesce(s.service, '') AS service,
        s.parent_id IS NOT NULL AND p.span_id IS NULL AS is_orphan,
        s.kind IN ('server', 'consumer') AS is_entry,
        s.parent_id IS NULL AS is_root
    FROM trace_span AS s
    JOIN source AS src ON src.id = s.source_id
    LEFT JOIN trace_span AS p
        ON p.source_id = s.source_id AND p.trace_id = s.trace_id AND p.span_id = s.parent_id
    WHERE src.part = 'incident' AND (s.parent_id IS NOT NULL OR s.kind IS DISTINCT FROM 'internal')
)
SELECT
    -- Service, '' when unknown.
    service,
    -- Its spans.
    count(*) AS spans,
    -- Spans that name a parent which is not there.
    count(*) FILTER (is_orphan) AS orphans,
    -- Roots, where most calls of the service have a parent; else 0: it is where requests come in.
    CASE WHEN count(*) FILTER (is_root AND is_entry) < 0.5 * count(*) FILTER (is_entry)
        THEN count(*) FILTER (is_root AND is_entry) ELSE 0 END AS lost_roots
FROM placed
GROUP BY service;

-- Labels of metrics that name single requests, users or sessions: nearly as many values as series.
CREATE VIEW identifier_label AS
WITH pair AS (
    SELECT s.name, s.id, unnest(map_entries(s.labels)) AS label
    FROM series AS s
    JOIN source AS src ON src.id = s.source_id
    WHERE src.part = 'incident'
)
SELECT
    -- Label.
    label.key AS key,
    -- Its values.
    count(DISTINCT label.value) AS n_values,
    -- Series that carry it.
    count(DISTINCT id) AS n_series,
    -- One metric that carries it.
    min(name) AS metric
FROM pair
WHERE NOT regexp_matches(lower(label.key),
    '^(le|quantile|instance|pod|node|nodename|hostname|uuid|gpu|gpu_uuid|device|container_id|image_id|uid|pci_bus_id)$')
GROUP BY label.key
HAVING count(DISTINCT label.value) > 50
    AND (regexp_matches(lower(label.key), '(request|trace|span|session|user|conversation|correlation|message)[._-]?id')
        OR (regexp_matches(lower(label.key), '(^|[._-])(id|uuid|guid)$')
            AND count(DISTINCT label.value) > 0.5 * count(DISTINCT id)));

-- Pauses of the scrapes of each target, longer than two and a half steps.
CREATE VIEW scrape_pause AS
WITH scrape AS (
    SELECT DISTINCT s.source_id, coalesce(s.labels['instance'], s.labels['pod'], '') AS target, v.ts_ns
    FROM sample_aligned AS v
    JOIN series AS s ON s.id = v.series_id
    JOIN source AS src ON src.id = s.source_id
    WHERE src.part = 'incident' AND coalesce(s.labels['instance'], s.labels['pod'], '') <> ''
        -- The server itself writes these, also while the target is down.
        AND s.name <> 'up' AND NOT starts_with(s.name, 'scrape_') AND NOT starts_with(s.name, 'ALERTS')
),
step AS (
    SELECT source_id, target, ts_ns,
        ts_ns - lag(ts_ns) OVER (PARTITION BY source_id, target ORDER BY ts_ns) AS dt_ns
    FROM scrape
),
typical AS (
    SELECT source_id, target, median(dt_ns) AS step_ns FROM step GROUP BY source_id, target
)
SELECT
    -- Scraped target (instance, else pod).
    s.target,
    -- Number of pauses.
    count(*) AS pauses,
    -- Longest pause, ns.
    max(s.dt_ns) AS longest_ns,
    -- Begin of the longest pause, ns since the Unix epoch.
    CAST(max_by(s.ts_ns - s.dt_ns, s.dt_ns) AS BIGINT) AS since_ns,
    -- Usual distance of scrapes, ns.
    any_value(t.step_ns) AS step_ns
FROM step AS s
JOIN typical AS t ON t.source_id = s.source_id AND t.target = s.target
WHERE s.dt_ns > 2.5 * t.step_ns
GROUP BY s.target;

-- How many of the requests that servers counted the traces have.
CREATE VIEW traced_share AS
WITH counted AS (
    SELECT role, CASE WHEN role = 'gateway_latency' THEN service ELSE '' END AS service,
        sum(greatest(n, 0)) AS requests, min(ts_ns) AS first_ns, max(ts_ns) AS last_ns
    FROM served_count
    WHERE part = 'incident'
    GROUP BY ALL
),
seen AS (
    SELECT v.role, CASE WHEN v.role = 'gateway_latency' THEN v.service ELSE '' END AS service,
        v.end_ns + src.shift_ns AS end_ns
    FROM served_span AS v
    JOIN source AS src ON src.id = v.source_id
    WHERE src.part = 'incident'
)
SELECT
    -- 'e2e_latency' (engines together) or 'gateway_latency' (one service).
    c.role,
    -- Service; '' for the engines.
    c.service,
    -- Requests that the metrics counted.
    TRY_CAST(c.requests AS BIGINT) AS requests,
    -- Spans of them in the same time.
    count(*) AS spans
FROM counted AS c
JOIN seen AS v ON v.role = c.role AND v.service = c.service AND v.end_ns BETWEEN c.first_ns AND c.last_ns
WHERE c.requests > 0
GROUP BY c.role, c.service, c.requests;

-- What spans of each service lack of the labels by which they can be told apart.
CREATE VIEW unlabelled_span AS
SELECT
    -- Service, '' when unknown.
    coalesce(s.service, '') AS service,
    -- Its spans.
    count(*) AS spans,
    -- Spans without service.version.
    count(*) FILTER (s.attributes ->> '$."resource.service.version"' IS NULL) AS no_version,
    -- Spans without deployment.environment.
    count(*) FILTER (coalesce(
        s.attributes ->> '$."resource.deployment.environment.name"',
        s.attributes ->> '$."resource.deployment.environment"') IS NULL) AS no_environment
FROM span AS s
JOIN source AS src ON src.id = s.source_id
WHERE src.part = 'incident'
GROUP BY coalesce(s.service, '');

-- What series of each service say of its version and environment.
CREATE VIEW labelled_series AS
WITH label AS (
    SELECT DISTINCT r.service, r.series_id, s.name, lower(unnest(map_keys(s.labels))) AS key
    FROM series_role AS r
    JOIN series AS s ON s.id = r.series_id
    JOIN source AS src ON src.id = s.source_id
    WHERE src.part = 'incident' AND r.service <> ''
)
SELECT
    -- Service, never ''.
    service,
    -- Its series.
    count(DISTINCT series_id) AS series,
    -- Series with a version, a build or an image.
    count(DISTINCT series_id) FILTER (regexp_matches(key,
        '(^|[._])version$|^(image|image_tag|image_id|revision|build|git_sha|git_commit)$')) AS with_version,
    -- Series with an environment.
    count(DISTINCT series_id) FILTER (regexp_matches(key,
        '^(env|environment|stage|tier|deployment_environment(_name)?|deployment\.environment(\.name)?)$')) AS with_environment
FROM label
GROUP BY service;

-- Spans that stand for several requests at once, so that a latency belongs to none of them.
CREATE VIEW batch_span AS
WITH linked AS (
    SELECT source_id, trace_id, span_id, count(DISTINCT linked_trace_id) AS requests
    FROM span_link
    GROUP BY source_id, trace_id, span_id
)
SELECT
    -- Service, '' when unknown.
    coalesce(s.service, '') AS service,
    -- Operation name.
    s.name,
    -- Spans that cover more than one request.
    count(*) AS spans,
    -- Requests that they cover on average.
    avg(greatest(coalesce(l.requests, 0), coalesce(b.size, 0))) AS mean_requests
FROM span AS s
JOIN source AS src ON src.id = s.source_id
LEFT JOIN linked AS l ON l.source_id = s.source_id AND l.trace_id = s.trace_id AND l.span_id = s.span_id
CROSS JOIN LATERAL (SELECT TRY_CAST(coalesce(
    s.attributes ->> '$."batch.size"',
    s.attributes ->> '$."batch_size"',
    s.attributes ->> '$."gen_ai.batch.size"') AS BIGINT) AS size) AS b
WHERE src.part = 'incident' AND greatest(coalesce(l.requests, 0), coalesce(b.size, 0)) > 1
    AND s.attributes ->> '$."gen_ai.request.id"' IS NULL
GROUP BY coalesce(s.service, ''), s.name;
