-- Spans of the requests that are taken apart, at most $1 requests a side, in the order in which the
-- critical path is walked. An engine's own measurements stand beside its span.
WITH chosen AS (
    SELECT source_id, trace_id
    FROM cohort_request
    QUALIFY row_number() OVER (PARTITION BY side ORDER BY hash(trace_id), source_id, trace_id) <= $1
)
SELECT s.source_id, s.trace_id, s.span_id,
    CASE WHEN s.parent_id <> s.span_id THEN s.parent_id END AS parent_id,
    coalesce(s.service, '') AS service, s.start_ns, s.start_ns + s.dur_ns AS end_ns,
    coalesce(s.attributes ->> '$."server.address"', s.attributes ->> '$."peer.service"',
        s.attributes ->> '$."db.system"', s.name) AS callee,
    coalesce(s.kind IN ('client', 'producer'), false) AS is_call,
    CASE
        WHEN regexp_matches(s.name, 'detokeni[sz]', 'i') THEN 'detokenise'
        WHEN regexp_matches(s.name, 'tokeni[sz]e', 'i') THEN 'tokenise'
        WHEN regexp_matches(s.name, 'seriali[sz]|encode_response|assemble', 'i') THEN 'serialise'
        WHEN regexp_matches(s.name, 'pool[._ ](acquire|wait|checkout)|acquire.*connection', 'i')
            THEN 'connection wait'
    END AS step,
    e.span_id IS NOT NULL AS is_engine, e.queue_ns, e.prefill_ns, e.decode_ns
FROM chosen AS c
JOIN trace_span AS s ON s.source_id = c.source_id AND s.trace_id = c.trace_id
LEFT JOIN engine_span AS e
    ON e.source_id = s.source_id AND e.trace_id = s.trace_id AND e.span_id = s.span_id
WHERE s.start_ns IS NOT NULL AND s.dur_ns IS NOT NULL
ORDER BY s.source_id, s.trace_id, s.start_ns, s.dur_ns DESC, s.span_id;
