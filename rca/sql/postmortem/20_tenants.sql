-- Tenants with at least one request in the window.
SELECT
    count(DISTINCT tenant) FILTER (part = 'baseline') AS reference,
    count(DISTINCT tenant)
        FILTER (part = 'incident' AND start_ns BETWEEN $start_ns AND $end_ns) AS observed
FROM request
HAVING observed > 0;
