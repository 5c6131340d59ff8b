-- Share of the requests that failed.
SELECT
    avg(CAST(status = 'error' AS INTEGER)) FILTER (part = 'baseline') AS reference,
    avg(CAST(status = 'error' AS INTEGER))
        FILTER (part = 'incident' AND start_ns BETWEEN $start_ns AND $end_ns) AS observed
FROM request;
