-- Changes and alerts, and the incident window.
SELECT
    'incident' AS process,
    'changes' AS thread,
    'mark' AS shape,
    c.ts_ns + s.shift_ns AS ts_ns,
    0 AS dur_ns,
    c.kind || ' ' || c.subject AS name,
    NULL AS track,
    json_object('id', c.id, 'before', c.before, 'after', c.after) AS args
FROM change AS c
JOIN source AS s ON s.id = c.source_id
WHERE s.part = 'incident'
UNION ALL
SELECT
    'incident', 'alerts', 'mark', a.start_ns + s.shift_ns, 0, a.name, NULL,
    json_object('severity', a.severity)
FROM alert AS a
JOIN source AS s ON s.id = a.source_id
WHERE s.part = 'incident'
UNION ALL
SELECT
    'incident', 'window', 'slice', start_ns, end_ns - start_ns, 'incident window', NULL,
    json_object('detected_by', detected_by, 'slo', slo)
FROM incident_window
WHERE start_ns IS NOT NULL AND end_ns IS NOT NULL
ORDER BY ts_ns, name;
