-- Spans of requests, one asynchronous track a trace, in the process of their service.
SELECT
    coalesce(x.service, 'unknown service') AS process,
    'requests' AS thread,
    'async' AS shape,
    x.start_ns + s.shift_ns AS ts_ns,
    x.dur_ns AS dur_ns,
    x.name AS name,
    x.trace_id AS track,
    json_object('trace_id', x.trace_id, 'span_id', x.span_id, 'status', x.status) AS args
FROM span AS x
JOIN source AS s ON s.id = x.source_id
WHERE s.part = 'incident' AND x.start_ns IS NOT NULL AND x.flaw IS NULL
ORDER BY x.source_id, x.start_ns, x.trace_id, x.span_id;
