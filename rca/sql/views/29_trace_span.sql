-- The machine whose clock a span's times are of: the node, else the host, else the service.
CREATE MACRO span_host(attributes, service) AS coalesce(
    attributes ->> '$."resource.k8s.node.name"',
    attributes ->> '$."resource.host.name"',
    service,
    '');

-- Spans as parts of whole traces: a trace whose pieces lie in several sources stands under one of
-- them, its home, on that source's clock.
CREATE VIEW trace_span AS
WITH piece AS (
    SELECT h.source_id, h.trace_id, h.home_id, own.shift_ns - home.shift_ns AS shift_ns
    FROM trace_home AS h
    JOIN source AS own ON own.id = h.source_id
    JOIN source AS home ON home.id = h.home_id
)
SELECT
    -- The source that the trace is filed under.
    coalesce(p.home_id, s.source_id) AS source_id,
    -- The source that holds the span.
    s.source_id AS recorded_in,
    -- Trace id.
    s.trace_id,
    -- Span id.
    s.span_id,
    -- Parent's span id; NULL for a root.
    s.parent_id,
    -- Service that recorded it; NULL when unknown.
    s.service,
    -- Operation name.
    s.name,
    -- 'internal', 'server', 'client', 'producer' or 'consumer'; NULL when the source does not say.
    s.kind,
    -- Start by the clock of the source that the trace is filed under, ns; add its shift_ns. NULL when unknown, as it is of a span so long that its start or its end is wrong.
    CASE WHEN coalesce(s.flaw, '') <> 'absurd_duration'
        THEN s.start_ns + coalesce(p.shift_ns, 0) + coalesce(c.shift_ns, 0) END AS start_ns,
    -- Duration in ns; NULL when the source does not say, or says one that is none (span.flaw).
    CASE WHEN s.flaw IS NULL THEN s.dur_ns END AS dur_ns,
    -- 'ok', 'error' or 'unset'.
    s.status,
    -- Attributes of the span and its resource, a JSON object.
    s.attributes
FROM span AS s
LEFT JOIN piece AS p ON p.source_id = s.source_id AND p.trace_id = s.trace_id
-- Attributes are taken apart only in sources of which a host's clock is corrected.
LEFT JOIN host_clock AS c ON c.source_id = s.source_id
    AND c.host = CASE WHEN s.source_id IN (SELECT source_id FROM host_clock)
        THEN span_host(s.attributes, s.service) END;
