-- Calls from one host to another: by how much the callee's span begins after the caller's, and ends
-- before it. $1: one trace of so many is looked at. What is queued may begin at any time.
WITH crossed AS (
    SELECT c.source_id, src.part,
        p.recorded_in AS caller_source, span_host(p.attributes, p.service) AS caller,
        c.recorded_in AS callee_source, span_host(c.attributes, c.service) AS callee,
        c.start_ns - p.start_ns AS head_ns,
        p.start_ns + p.dur_ns - c.start_ns - c.dur_ns AS tail_ns
    FROM trace_span AS c
    JOIN trace_span AS p
        ON p.source_id = c.source_id AND p.trace_id = c.trace_id AND p.span_id = c.parent_id
    JOIN source AS src ON src.id = c.source_id
    WHERE p.dur_ns IS NOT NULL AND c.dur_ns IS NOT NULL AND c.span_id <> p.span_id
        AND p.service IS DISTINCT FROM c.service
        AND c.kind IS DISTINCT FROM 'consumer' AND p.kind IS DISTINCT FROM 'producer'
        AND hash(c.trace_id) % $1 = 0
)
SELECT part, caller_source, caller, callee_source, callee, count(*) AS n,
    -- The callee's clock is ahead of the caller's by at most this, but for one call in twenty,
    quantile_disc(head_ns, 0.05) AS high_ns,
    -- and by at least this.
    -quantile_disc(tail_ns, 0.05) AS low_ns
FROM crossed
WHERE caller <> callee OR caller_source <> callee_source
GROUP BY ALL
ORDER BY n DESC, part, caller_source, caller, callee_source, callee;
