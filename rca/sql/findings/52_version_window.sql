-- Versions that requests of the incident met together. Where the versions of a model and its partner
-- are the same ones for some model, they must be for all; else the partner that a model mostly has
-- is the right one.
WITH met AS (
    SELECT s.source_id, s.trace_id, min(s.start_ns + src.shift_ns) AS ts_ns,
        min(coalesce(attributes ->> '$."model.version"', attributes ->> '$."resource.model.version"')) AS model,
        max(coalesce(attributes ->> '$."tokenizer.version"', attributes ->> '$."resource.tokenizer.version"',
            attributes ->> '$."embedding.version"')) AS tokenizer,
        max(coalesce(attributes ->> '$."cache.version"', attributes ->> '$."cache.model_version"')) AS cache
    FROM trace_span AS s
    JOIN source AS src ON src.id = s.source_id
    WHERE s.start_ns IS NOT NULL
        AND regexp_matches(CAST(s.attributes AS VARCHAR),
            '"(resource\.)?(model|tokenizer|embedding|cache)\.(model_)?version"')
    GROUP BY s.source_id, s.trace_id
),
pair AS (
    SELECT source_id, trace_id, ts_ns, model, 'tokenizer' AS kind, tokenizer AS partner
    FROM met WHERE model IS NOT NULL AND tokenizer IS NOT NULL
    UNION ALL
    SELECT source_id, trace_id, ts_ns, model, 'cache', cache
    FROM met WHERE model IS NOT NULL AND cache IS NOT NULL
),
usual AS (
    SELECT kind, model, mode(partner) AS partner,
        max(avg(CAST(model = partner AS INTEGER))) OVER (PARTITION BY kind) > 0.9 AS count_alike
    FROM pair
    GROUP BY kind, model
),
judged AS (
    SELECT p.*, CASE WHEN u.count_alike THEN p.partner <> p.model ELSE p.partner <> u.partner END AS is_skewed
    FROM pair AS p
    JOIN usual AS u ON u.kind = p.kind AND u.model = p.model
)
SELECT j.model, j.kind, j.partner, j.is_skewed,
    count(*) AS requests,
    min(j.ts_ns) AS first_ns,
    max(j.ts_ns) AS last_ns,
    avg(CAST(r.is_slow AS INTEGER)) AS share_slow,
    (SELECT avg(CAST(o.is_slow AS INTEGER)) FROM judged AS q
        JOIN cohort_request AS o ON o.source_id = q.source_id AND o.trace_id = q.trace_id
        WHERE q.kind = j.kind AND NOT q.is_skewed AND o.side = 'window') AS share_slow_others
FROM judged AS j
JOIN source AS src ON src.id = j.source_id
LEFT JOIN cohort_request AS r
    ON r.source_id = j.source_id AND r.trace_id = j.trace_id AND r.side = 'window'
WHERE src.part = 'incident'
GROUP BY j.model, j.kind, j.partner, j.is_skewed
-- One version of each, that belong together, is nothing to tell.
QUALIFY count(*) OVER (PARTITION BY j.kind) > 1 OR j.is_skewed
ORDER BY first_ns, j.kind, j.model, j.partner;
