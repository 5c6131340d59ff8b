-- A request's time in pieces that do not overlap: one row a request and piece. Pieces add up to
-- 'end to end' for requests whose calls follow one another; calls made at the same time count twice.
CREATE VIEW latency_part AS
WITH call AS (
    SELECT s.source_id, s.trace_id,
        coalesce(s.attributes ->> '$."server.address"', s.attributes ->> '$."peer.service"', s.name) AS callee,
        sum(s.dur_ns) AS ns
    FROM trace_span AS s
    WHERE s.kind = 'client' AND s.dur_ns IS NOT NULL
        -- A call of the engine is the engine's time, by the engine's span below it or by whom it calls.
        AND NOT calls_engine(coalesce(s.attributes ->> '$."server.address"', s.attributes ->> '$."peer.service"'))
        AND NOT EXISTS (
            SELECT 1 FROM engine_span AS e
            JOIN trace_span AS x ON x.source_id = e.source_id AND x.trace_id = e.trace_id AND x.span_id = e.span_id
            WHERE e.trace_id = s.trace_id AND x.parent_id = s.span_id)
        AND s.parent_id IS NOT NULL
    GROUP BY s.source_id, s.trace_id, callee
),
calls AS (
    SELECT source_id, trace_id, sum(ns) AS ns FROM call GROUP BY source_id, trace_id
),
known AS (
    SELECT r.part, r.start_ns, r.e2e_ns, r.engine_ns, r.queue_ns, r.prefill_ns, r.decode_ns,
        least(coalesce(c.ns, 0), r.e2e_ns) AS calls_ns, r.source_id, r.trace_id
    FROM request AS r
    LEFT JOIN calls AS c ON c.source_id = r.source_id AND c.trace_id = r.trace_id
),
piece AS (
    SELECT part, start_ns, 'end to end' AS piece, e2e_ns AS ns FROM known
    UNION ALL
    SELECT part, start_ns, 'queue', queue_ns FROM known WHERE queue_ns IS NOT NULL
    UNION ALL
    SELECT part, start_ns, 'prefill', prefill_ns FROM known WHERE prefill_ns IS NOT NULL
    UNION ALL
    SELECT part, start_ns, 'decode', decode_ns FROM known WHERE decode_ns IS NOT NULL
    UNION ALL
    SELECT part, start_ns, 'engine, rest',
        engine_ns - coalesce(queue_ns, 0) - coalesce(prefill_ns, 0) - coalesce(decode_ns, 0)
    FROM known WHERE engine_ns IS NOT NULL
    UNION ALL
    SELECT k.part, k.start_ns, 'calls of ' || c.callee, c.ns
    FROM known AS k
    JOIN call AS c ON c.source_id = k.source_id AND c.trace_id = k.trace_id
    UNION ALL
    SELECT part, start_ns, 'gateway and network', e2e_ns - engine_ns - calls_ns
    FROM known WHERE engine_ns IS NOT NULL
    UNION ALL
    SELECT part, start_ns, 'no engine span', e2e_ns - calls_ns
    FROM known WHERE engine_ns IS NULL
)
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- Arrival, ns since the Unix epoch.
    start_ns AS ts_ns,
    -- 'end to end', 'queue', 'prefill', 'decode', 'engine, rest', 'gateway and network', 'no engine span' or 'calls of SERVICE'.
    piece,
    -- Time in ns; may be negative for 'gateway and network' when spans overrun.
    CAST(ns AS DOUBLE) AS ns
FROM piece;
