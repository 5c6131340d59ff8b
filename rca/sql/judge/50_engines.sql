-- Services that are engines, by what is measured of them.
SELECT DISTINCT service FROM series_role
WHERE role IN ('running', 'waiting', 'kv_usage', 'itl', 'preemptions') AND service <> ''
ORDER BY service;
