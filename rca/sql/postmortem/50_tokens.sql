-- Generated tokens a second of the requests that ended, in the reference and in the window.
SELECT
    sum(output_tokens) FILTER (part = 'baseline') * 1e9
        / nullif(max(end_ns) FILTER (part = 'baseline')
            - min(end_ns) FILTER (part = 'baseline'), 0) AS reference,
    sum(output_tokens) FILTER (part = 'incident' AND end_ns BETWEEN $start_ns AND $end_ns) * 1e9
        / ($end_ns - $start_ns) AS observed
FROM request;
