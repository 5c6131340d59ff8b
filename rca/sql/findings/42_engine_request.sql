-- Requests as the engine saw them, with the part they belong to; in the order of their arrival.
SELECT src.part, e.start_ns + src.shift_ns AS arrival_ns, e.queue_ns, e.dur_ns - e.queue_ns AS service_ns
FROM engine_span AS e
JOIN source AS src ON src.id = e.source_id
WHERE e.queue_ns >= 0 AND e.dur_ns >= e.queue_ns AND e.start_ns IS NOT NULL
ORDER BY src.part, arrival_ns, e.trace_id, e.span_id;
