-- Requests of a part with their lengths, in order of their arrival, and the prefix that their spans name.
-- $1: part.
WITH named AS (
    SELECT source_id, trace_id, min(coalesce(
            attributes ->> '$."prefix.hash"', attributes ->> '$."gen_ai.prompt.prefix_hash"',
            attributes ->> '$."llm.prefix.hash"', attributes ->> '$."prompt.prefix.id"')) AS prefix
    FROM trace_span
    GROUP BY source_id, trace_id
)
SELECT
    -- Arrival, ns since the Unix epoch.
    r.start_ns,
    -- Prompt tokens.
    r.input_tokens,
    -- Tokens generated.
    r.output_tokens,
    -- Name of the prefix; NULL when no span names one.
    n.prefix
FROM request AS r
LEFT JOIN named AS n ON n.source_id = r.source_id AND n.trace_id = r.trace_id
WHERE r.part = $1 AND r.input_tokens > 0 AND r.output_tokens > 0
ORDER BY r.start_ns, r.trace_id;
