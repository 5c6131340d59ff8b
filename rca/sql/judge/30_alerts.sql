-- Alerts and how long after the window's start they began, s.
SELECT a.name, a.severity, (a.start_ns + s.shift_ns - w.start_ns) / 1e9 AS after_s
FROM alert AS a JOIN source AS s ON s.id = a.source_id
CROSS JOIN (SELECT start_ns FROM incident_window WHERE status = 'incident' ORDER BY id LIMIT 1) AS w
ORDER BY a.start_ns, a.name LIMIT 8;
