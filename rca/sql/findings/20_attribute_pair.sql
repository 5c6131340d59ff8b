-- Attributes with values by request of the window: of its spans, of the services it calls, of the
-- operations in it, of its lengths. $1: the most values that a label has; more are identifiers.
-- $2: what takes longer is slow.
WITH chosen AS (
    -- Of large windows some thousand requests, picked by a hash: the same ones every time.
    SELECT source_id, trace_id, row_number() OVER (ORDER BY hash(trace_id), source_id, trace_id) AS request,
        e2e_ns > $2 AS is_slow, side, input_tokens, output_tokens, tenant, model, replica
    FROM cohort_request
    WHERE side = 'window'
    QUALIFY row_number() OVER (PARTITION BY side ORDER BY hash(trace_id), source_id, trace_id) <= 5000
),
spans AS (
    SELECT c.request, s.service, s.name, s.kind, s.status, s.attributes, s.parent_id
    FROM chosen AS c
    JOIN trace_span AS s ON s.source_id = c.source_id AND s.trace_id = c.trace_id
),
-- Few spans have attributes of their own kind: each text is taken apart once.
text AS (
    SELECT attributes, CAST(attributes AS VARCHAR) AS text, list(DISTINCT request) AS requests
    FROM spans
    GROUP BY attributes
),
-- Keys and their values come in the same order.
split AS (
    SELECT requests, unnest(json_keys(attributes)) AS key, unnest(json_extract(attributes, '$.*')) AS held
    FROM text
),
valued AS (
    SELECT requests, key, held ->> '$' AS value, json_type(held) AS type
    FROM split
    WHERE NOT contains(key, '"')
),
pair AS (
    SELECT unnest(requests) AS request, key AS attribute, value
    FROM valued
    WHERE value IS NOT NULL AND type NOT IN ('DOUBLE', 'OBJECT', 'ARRAY') AND length(value) <= 120
    UNION ALL
    SELECT request, 'calls', service FROM spans WHERE service IS NOT NULL AND parent_id IS NOT NULL
    UNION ALL
    SELECT request, 'calls', coalesce(attributes ->> '$."server.address"', attributes ->> '$."peer.service"',
        attributes ->> '$."db.system"')
    FROM spans
    WHERE kind = 'client'
    UNION ALL
    SELECT request, 'operation', name FROM spans
    UNION ALL
    SELECT request, 'failed operation', name FROM spans WHERE status = 'error'
    UNION ALL
    SELECT request, 'tenant', tenant FROM chosen
    UNION ALL
    SELECT request, 'model', model FROM chosen
    UNION ALL
    SELECT request, 'replica', replica FROM chosen
    UNION ALL
    SELECT request, 'prompt tokens', length_band(input_tokens) FROM chosen
    UNION ALL
    SELECT request, 'output tokens', length_band(output_tokens) FROM chosen
),
-- A label repeats its values; an identifier has a new one for nearly every request.
label AS (
    SELECT attribute
    FROM pair
    GROUP BY attribute
    HAVING count(DISTINCT value) <= greatest($1, CASE
        WHEN attribute IN ('calls', 'operation', 'failed operation') THEN 200 ELSE 0 END)
        AND (count(DISTINCT value) <= 10 OR (count(DISTINCT value) < 0.5 * count(DISTINCT request)
            -- More than ten numbers are an amount and no label.
            AND count(TRY_CAST(value AS DOUBLE)) < count(*)))
),
size AS (
    SELECT count(*) FILTER (is_slow) AS n_slow, count(*) FILTER (NOT is_slow) AS n_other FROM chosen
)
SELECT p.attribute, p.value,
    any_value(z.n_slow) AS n_slow,
    count(DISTINCT p.request) FILTER (c.is_slow) AS n_slow_with,
    any_value(z.n_other) AS n_other,
    count(DISTINCT p.request) FILTER (NOT c.is_slow) AS n_other_with,
    -- The same for two attributes that mark the same requests.
    CAST(bit_xor(hash(p.request)) AS VARCHAR) AS mark
FROM (SELECT DISTINCT request, attribute, value FROM pair WHERE value IS NOT NULL) AS p
JOIN label AS l ON l.attribute = p.attribute
JOIN chosen AS c ON c.request = p.request
CROSS JOIN size AS z
GROUP BY p.attribute, p.value
-- What all have, or hardly one has, tells nothing.
HAVING count(DISTINCT p.request) BETWEEN 5 AND any_value(z.n_slow + z.n_other) - 1
ORDER BY p.attribute, p.value;
