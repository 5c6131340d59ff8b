-- Shares of the reference's requests by what each request says of itself and by what it calls.
WITH reference AS (
    SELECT source_id, trace_id, tenant, model, replica, input_tokens, output_tokens
    FROM cohort_request
    WHERE side = 'reference'
),
value AS (
    SELECT source_id, trace_id, 'tenant' AS attribute, tenant AS value FROM reference
    UNION ALL SELECT source_id, trace_id, 'model', model FROM reference
    UNION ALL SELECT source_id, trace_id, 'replica', replica FROM reference
    UNION ALL SELECT source_id, trace_id, 'prompt tokens', length_band(input_tokens) FROM reference
    UNION ALL SELECT source_id, trace_id, 'output tokens', length_band(output_tokens) FROM reference
    UNION ALL
    SELECT s.source_id, s.trace_id, 'calls', s.service
    FROM trace_span AS s
    SEMI JOIN reference AS r ON r.source_id = s.source_id AND r.trace_id = s.trace_id
    WHERE s.parent_id IS NOT NULL
    UNION ALL
    SELECT s.source_id, s.trace_id, 'calls', coalesce(s.attributes ->> '$."server.address"',
        s.attributes ->> '$."peer.service"', s.attributes ->> '$."db.system"')
    FROM trace_span AS s
    SEMI JOIN reference AS r ON r.source_id = s.source_id AND r.trace_id = s.trace_id
    WHERE s.kind = 'client'
)
SELECT attribute, value,
    count(DISTINCT (source_id, trace_id)) / (SELECT count(*) FROM reference) AS share
FROM value
WHERE value IS NOT NULL
GROUP BY attribute, value;
