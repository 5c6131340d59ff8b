-- Share of the requests that took longer than the limit.
SELECT
    avg(CAST(e2e_ns > $limit_ns AS INTEGER)) FILTER (part = 'baseline') AS reference,
    avg(CAST(e2e_ns > $limit_ns AS INTEGER))
        FILTER (part = 'incident' AND start_ns BETWEEN $start_ns AND $end_ns) AS observed
FROM request
WHERE e2e_ns IS NOT NULL;
