-- Every span with the time that it spent itself: its duration less the union of its children,
-- each clipped to it, since real children end after their parents.
CREATE VIEW span_self AS
WITH child AS (
    SELECT c.source_id, c.trace_id, c.parent_id,
        c.service,
        greatest(c.start_ns, p.start_ns) AS start_ns,
        least(c.start_ns + coalesce(c.dur_ns, 0), p.start_ns + p.dur_ns) AS end_ns
    FROM trace_span AS c
    JOIN trace_span AS p
        ON p.source_id = c.source_id AND p.trace_id = c.trace_id AND p.span_id = c.parent_id
    WHERE p.dur_ns IS NOT NULL AND c.start_ns IS NOT NULL AND c.span_id <> p.span_id
),
-- What a child adds to the union of the children that start before it.
added AS (
    SELECT source_id, trace_id, parent_id, service,
        greatest(end_ns - greatest(start_ns, coalesce(max(end_ns) OVER (
            PARTITION BY source_id, trace_id, parent_id ORDER BY start_ns, end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), start_ns)), 0) AS added_ns
    FROM child
),
children AS (
    SELECT source_id, trace_id, parent_id, CAST(sum(added_ns) AS BIGINT) AS child_ns,
        CASE WHEN count(DISTINCT service) = 1 THEN min(service) END AS child_service
    FROM added
    GROUP BY source_id, trace_id, parent_id
)
SELECT
    -- The source it comes from.
    s.source_id,
    -- 'incident' or 'baseline'.
    src.part,
    -- Trace id.
    s.trace_id,
    -- Span id.
    s.span_id,
    -- Parent's span id; NULL for a root.
    s.parent_id,
    -- Service that recorded it, '' when unknown.
    coalesce(s.service, '') AS service,
    -- Operation name.
    s.name,
    -- 'internal', 'server', 'client', 'producer' or 'consumer'; NULL when unknown.
    s.kind,
    -- 'ok', 'error' or 'unset'.
    s.status,
    -- The one other service that its children belong to; NULL when there is none or there are several.
    CASE WHEN c.child_service <> coalesce(s.service, '') THEN c.child_service END AS callee,
    -- Start, ns since the Unix epoch, the source's clock corrected.
    s.start_ns + src.shift_ns AS start_ns,
    -- Duration in ns.
    s.dur_ns,
    -- Time covered by its children, ns.
    coalesce(c.child_ns, 0) AS child_ns,
    -- Time it spent itself, or between it and its callee, ns.
    s.dur_ns - coalesce(c.child_ns, 0) AS self_ns
FROM trace_span AS s
JOIN source AS src ON src.id = s.source_id
LEFT JOIN children AS c
    ON c.source_id = s.source_id AND c.trace_id = s.trace_id AND c.parent_id = s.span_id
WHERE s.dur_ns IS NOT NULL;
