-- Signals with a role, as counters.
SELECT
    'signals' AS process,
    '' AS thread,
    'counter' AS shape,
    ts_ns,
    NULL AS dur_ns,
    trim(service || ' ' || role) AS name,
    NULL AS track,
    json_object('value', sum(num) / sum(den)) AS args
FROM signal_value
WHERE part = 'incident' AND source = 'metrics' AND role NOT LIKE 'metric:%'
GROUP BY service, role, ts_ns
HAVING sum(den) > 0 AND isfinite(sum(num) / sum(den))
ORDER BY ts_ns, name;
