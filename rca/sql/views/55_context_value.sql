-- Bins of ten seconds that a log covers whole, first and last line left out; lines count that have a time.
CREATE VIEW log_bin AS
SELECT
    -- The log.
    src.id AS source_id,
    -- 'incident' or 'baseline'.
    src.part,
    -- Number of the bin: tens of seconds since the Unix epoch.
    b.bin
FROM (
    SELECT source_id, min(ts_ns) // 10000000000 AS first_bin, max(ts_ns) // 10000000000 AS last_bin
    FROM log
    GROUP BY source_id
) AS l
JOIN source AS src ON src.id = l.source_id
CROSS JOIN LATERAL (SELECT unnest(range(first_bin + 1, last_bin)) AS bin) AS b;

-- What logs, and the attributes of requests, say; same form as role_value.
-- Rows exist only where the recordings could show the thing at all: a share of nothing is not zero.
CREATE VIEW context_value AS
WITH line AS (
    SELECT src.part, l.source_id, l.ts_ns // 10000000000 AS bin, l.template,
        coalesce(regexp_matches(lower(l.message), '(re|jit[ -]?)?compil(e|ing|ation)|autotun'), false) AS compiles,
        coalesce(l.level IN ('warning', 'error', 'critical'), false) AS is_bad
    FROM log AS l
    JOIN source AS src ON src.id = l.source_id
    WHERE l.ts_ns IS NOT NULL
),
-- Where a log's healthy part ends: a baseline is healthy, of an incident the first third counts.
log_known AS (
    SELECT part, min(bin) + (max(bin) - min(bin)) // 3 AS until,
        bool_or(part = 'baseline') OVER () AS has_baseline
    FROM line
    GROUP BY part
),
known_template AS (
    SELECT DISTINCT l.template
    FROM line AS l
    JOIN log_known AS k ON k.part = l.part
    WHERE l.part = 'baseline' OR (NOT k.has_baseline AND l.bin < k.until)
),
log_rate AS (
    SELECT 'log' AS source, b.part, 'log_rate' AS role, '' AS service, b.bin * 10000000000 AS ts_ns,
        CAST(count(l.template) AS DOUBLE) AS num, 10.0 * count(DISTINCT b.source_id) AS den
    FROM log_bin AS b
    LEFT JOIN line AS l ON l.source_id = b.source_id AND l.bin = b.bin
    GROUP BY b.part, b.bin
),
-- Warnings and errors of a kind that the healthy part never wrote.
new_line AS (
    SELECT 'log' AS source, b.part, 'new_log_template' AS role, '' AS service, b.bin * 10000000000 AS ts_ns,
        CAST(count(l.template) AS DOUBLE) AS num, 10.0 * count(DISTINCT b.source_id) AS den
    FROM log_bin AS b
    LEFT JOIN line AS l ON l.source_id = b.source_id AND l.bin = b.bin AND l.is_bad
        AND l.template NOT IN (SELECT template FROM known_template)
    GROUP BY b.part, b.bin
),
-- Lines that tell of compilation, at any level: at the start of an engine they are as it should be.
compile_line AS (
    SELECT 'log' AS source, b.part, 'compile_lines' AS role, '' AS service, b.bin * 10000000000 AS ts_ns,
        CAST(count(l.template) AS DOUBLE) AS num, 10.0 * count(DISTINCT b.source_id) AS den
    FROM log_bin AS b
    LEFT JOIN line AS l ON l.source_id = b.source_id AND l.bin = b.bin AND l.compiles
    GROUP BY b.part, b.bin
),
-- Spans with the attributes that are asked of them; the text is searched first, since few have any.
told AS (
    SELECT s.source_id, src.part, s.trace_id, coalesce(s.service, '') AS service,
        s.start_ns + src.shift_ns AS ts_ns, s.kind, s.attributes, CAST(s.attributes AS VARCHAR) AS text
    FROM trace_span AS s
    JOIN source AS src ON src.id = s.source_id
    WHERE s.start_ns IS NOT NULL
),
response AS (
    SELECT 'trace' AS source, part, 'response_bytes' AS role, service, ts_ns,
        TRY_CAST(coalesce(
            attributes ->> '$."http.response.body.size"',
            attributes ->> '$."http.response_content_length"') AS DOUBLE) AS num,
        1.0 AS den
    FROM told
    WHERE contains(text, '"http.response')
),
-- Requests that ask for a structured answer (a JSON schema, a grammar, a regular expression).
structured AS (
    SELECT source_id, trace_id, part,
        max(CAST(regexp_matches(lower(text),
            '"[^"]*(response_format|response\.format|structured_output|guided_|json_schema|output\.type)[^"]*":\s*("(json|schema|grammar|regex|choice|struct|true|\{)|true|\{)'
        ) AS INTEGER)) AS asks
    FROM told
    WHERE regexp_matches(lower(text), 'response_format|response\.format|structured_output|guided_|json_schema|output\.type')
    GROUP BY source_id, trace_id, part
),
schema_share AS (
    SELECT 'trace' AS source, r.part, 'schema_share' AS role, r.service, r.start_ns AS ts_ns,
        CAST(coalesce(s.asks, 0) AS DOUBLE) AS num, 1.0 AS den
    FROM request AS r
    LEFT JOIN structured AS s ON s.source_id = r.source_id AND s.trace_id = r.trace_id
    WHERE EXISTS (SELECT 1 FROM structured)
),
-- Adapters that wait for a slot. vLLM writes them in a label; the value is the time of writing, so
-- of several series the largest is the one in force.
lora AS (
    SELECT src.part, v.ts_ns, s.labels['instance'] AS instance,
        coalesce(any_value(e.service), '') AS service,
        max_by(len(list_filter(string_split(coalesce(s.labels['waiting_lora_adapters'], ''), ','),
            lambda x: trim(x) <> '')), v.value) AS n_waiting
    FROM series AS s
    JOIN source AS src ON src.id = s.source_id
    JOIN sample_aligned AS v ON v.series_id = s.id
    LEFT JOIN (
        SELECT o.source_id, o.labels['instance'] AS instance, min(r.service) AS service
        FROM series AS o
        JOIN series_role AS r ON r.series_id = o.id
        WHERE r.role IN ('running', 'waiting')
        GROUP BY ALL
    ) AS e ON e.source_id = s.source_id AND e.instance = s.labels['instance']
    WHERE regexp_matches(s.name, '^(ray_)?vllm[:_]lora_requests_info$') AND v.value > 0
    GROUP BY src.part, v.ts_ns, s.labels['instance']
),
lora_waiting AS (
    SELECT 'metrics' AS source, part, 'lora_waiting' AS role, service, ts_ns,
        CAST(sum(n_waiting) AS DOUBLE) AS num, 1.0 AS den
    FROM lora
    GROUP BY part, service, ts_ns
),
-- Versions that one request met: of the model, and of what must go with it.
version AS (
    SELECT source_id, trace_id, part, min(ts_ns) AS ts_ns, min(service) AS service,
        min(coalesce(attributes ->> '$."model.version"', attributes ->> '$."resource.model.version"')) AS model,
        max(coalesce(attributes ->> '$."model.version"', attributes ->> '$."resource.model.version"')) AS other_model,
        max(coalesce(
            attributes ->> '$."tokenizer.version"',
            attributes ->> '$."resource.tokenizer.version"',
            attributes ->> '$."embedding.version"')) AS tokenizer,
        max(coalesce(
            attributes ->> '$."cache.version"',
            attributes ->> '$."cache.model_version"')) AS cache
    FROM told
    WHERE regexp_matches(text, '"(resource\.)?(model|tokenizer|embedding|cache)\.(model_)?version"')
    GROUP BY source_id, trace_id, part
),
pair AS (
    SELECT source_id, trace_id, part, ts_ns, service, model, model <> other_model AS two_models, 'tokenizer' AS kind,
        tokenizer AS partner
    FROM version
    WHERE model IS NOT NULL AND tokenizer IS NOT NULL
    UNION ALL
    SELECT source_id, trace_id, part, ts_ns, service, model, model <> other_model, 'cache', cache
    FROM version
    WHERE model IS NOT NULL AND cache IS NOT NULL
),
-- Where both count alike in most requests, they must be equal; else the partner that a model mostly has is the right one.
usual AS (
    SELECT kind, model, mode(partner) AS partner,
        2 * sum(sum(CAST(model = partner AS INTEGER))) OVER (PARTITION BY kind)
            > sum(count(*)) OVER (PARTITION BY kind) AS count_alike
    FROM pair
    GROUP BY kind, model
),
version_skew AS (
    SELECT 'trace' AS source, p.part,
        -- An entry of a cache outlives the model that made it; a tokenizer is loaded with its model.
        CASE p.kind WHEN 'cache' THEN 'cache_version_skew' ELSE 'version_skew' END AS role,
        '' AS service, p.ts_ns,
        CAST(max(CAST((p.kind <> 'cache' AND p.two_models)
            OR CASE WHEN u.count_alike THEN p.partner <> p.model ELSE p.partner <> u.partner END
            AS INTEGER)) AS DOUBLE) AS num,
        1.0 AS den
    FROM pair AS p
    JOIN usual AS u ON u.kind = p.kind AND u.model = p.model
    GROUP BY p.source_id, p.trace_id, p.part, p.kind, p.ts_ns
),
-- Stretches of ten seconds in which one service answered with two versions of the same model or
-- tokenizer. Two builds of the service itself stand side by side in every rollout, and do not count.
service_version AS (
    SELECT 'trace' AS source, part, 'version_skew' AS role, service, bin * 10000000000 AS ts_ns,
        CAST(max(CAST(models > 1 OR tokenizers > 1 AS INTEGER)) AS DOUBLE) AS num, 1.0 AS den
    FROM (
        SELECT part, service, ts_ns // 10000000000 AS bin,
            count(DISTINCT coalesce(attributes ->> '$."model.version"', attributes ->> '$."resource.model.version"')) AS models,
            count(DISTINCT coalesce(
                attributes ->> '$."tokenizer.version"', attributes ->> '$."resource.tokenizer.version"')) AS tokenizers
        FROM told
        WHERE service <> '' AND regexp_matches(text, '"(resource\.)?(model|tokenizer)\.version"')
        GROUP BY part, service, bin,
            coalesce(attributes ->> '$."model.name"', attributes ->> '$."gen_ai.request.model"')
    )
    GROUP BY part, service, bin
),
-- Tenants of the first third of each side; those of the whole baseline are known in the incident.
tenant_seen AS (
    SELECT part, tenant, start_ns, service,
        min(start_ns) OVER side + (max(start_ns) OVER side - min(start_ns) OVER side) // 3 AS until_ns,
        bool_or(part = 'baseline') OVER () AS has_baseline
    FROM request
    WHERE tenant IS NOT NULL
    WINDOW side AS (PARTITION BY part)
),
tenant_known AS (
    SELECT DISTINCT part, tenant
    FROM tenant_seen
    WHERE start_ns < until_ns AND (part = 'baseline' OR NOT has_baseline)
    UNION
    SELECT DISTINCT 'incident', tenant
    FROM tenant_seen
    WHERE part = 'baseline'
),
tenant_new AS (
    SELECT 'trace' AS source, t.part, 'tenant_new' AS role, t.service, t.start_ns AS ts_ns,
        CAST(k.tenant IS NULL AS INTEGER) + 0.0 AS num, 1.0 AS den
    FROM tenant_seen AS t
    LEFT JOIN tenant_known AS k ON k.part = t.part AND k.tenant = t.tenant
    WHERE t.part = 'incident' OR t.start_ns >= t.until_ns
),
every AS (
    SELECT * FROM log_rate
    UNION ALL SELECT * FROM new_line
    UNION ALL SELECT * FROM compile_line
    UNION ALL SELECT * FROM response WHERE num IS NOT NULL
    UNION ALL SELECT * FROM schema_share
    UNION ALL SELECT * FROM lora_waiting
    UNION ALL SELECT * FROM version_skew
    UNION ALL SELECT * FROM service_version
    UNION ALL SELECT * FROM tenant_new
)
SELECT
    -- 'log', 'metrics' or 'trace': what it is made of.
    source,
    -- 'incident' or 'baseline'.
    part,
    -- Role, for example 'log_rate'.
    role,
    -- Service, '' where it speaks of the whole system.
    service,
    -- Time, ns since the Unix epoch; for logs the start of ten seconds.
    ts_ns,
    -- Numerator of the value.
    num,
    -- Denominator of the value.
    den
FROM every;
