-- Requests that arrived in the window; in the reference, as many seconds' worth.
SELECT
    count(*) FILTER (part = 'baseline') * ($end_ns - $start_ns)
        / nullif(max(start_ns) FILTER (part = 'baseline')
            - min(start_ns) FILTER (part = 'baseline'), 0) AS reference,
    count(*) FILTER (part = 'incident' AND start_ns BETWEEN $start_ns AND $end_ns) AS observed
FROM request;
