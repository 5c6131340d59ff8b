-- Parts by side: means over all requests taken apart, also those without the part.
WITH request AS (
    SELECT r.source_id, r.trace_id, r.side, r.e2e_ns,
        r.e2e_ns >= quantile_disc(r.e2e_ns, 0.95) OVER (PARTITION BY r.side) AS is_tail,
        count(*) OVER (PARTITION BY r.side) AS n
    FROM cohort_request AS r
    SEMI JOIN request_part AS p ON p.source_id = r.source_id AND p.trace_id = r.trace_id
),
size AS (
    SELECT count(*) FILTER (side = 'reference') AS n_reference,
        count(*) FILTER (side = 'window') AS n_window,
        count(*) FILTER (side = 'reference' AND is_tail AND n >= 40) AS tail_reference,
        count(*) FILTER (side = 'window' AND is_tail AND n >= 40) AS tail_window
    FROM request
),
summed AS (
    SELECT p.part, p.service,
        coalesce(sum(p.ns) FILTER (r.side = 'reference'), 0) AS reference_ns,
        coalesce(sum(p.ns) FILTER (r.side = 'window'), 0) AS window_ns,
        coalesce(sum(p.ns) FILTER (r.side = 'reference' AND r.is_tail), 0) AS tail_reference_ns,
        coalesce(sum(p.ns) FILTER (r.side = 'window' AND r.is_tail), 0) AS tail_window_ns
    FROM request_part AS p
    JOIN request AS r ON r.source_id = p.source_id AND r.trace_id = p.trace_id
    GROUP BY p.part, p.service
),
mean AS (
    SELECT s.part, s.service, z.n_reference, z.n_window,
        s.reference_ns / nullif(z.n_reference, 0) AS mean_reference_ns,
        s.window_ns / z.n_window AS mean_window_ns,
        s.tail_reference_ns / nullif(z.tail_reference, 0) AS es95_reference_ns,
        s.tail_window_ns / nullif(z.tail_window, 0) AS es95_window_ns
    FROM summed AS s
    CROSS JOIN size AS z
    WHERE z.n_window > 0
)
SELECT *,
    mean_window_ns - mean_reference_ns AS added_ns,
    CASE WHEN sum(mean_window_ns - mean_reference_ns) OVER () > 0
        THEN (mean_window_ns - mean_reference_ns) / sum(mean_window_ns - mean_reference_ns) OVER ()
    END AS share,
    es95_window_ns - es95_reference_ns AS es95_added_ns
FROM mean
ORDER BY added_ns DESC NULLS LAST, part, service;
