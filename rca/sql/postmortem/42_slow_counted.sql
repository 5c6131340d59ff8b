-- Share of the requests that took longer than the limit, by the latency histogram: the bucket that
-- holds the limit cut in proportion, and the least and the largest share that it leaves possible.
WITH over AS (
    SELECT 'baseline' AS part, * FROM latency_over('baseline', $role, $limit_ns / 1e9)
    UNION ALL
    SELECT 'incident', * FROM latency_over('incident', $role, $limit_ns / 1e9)
    WHERE ts_ns BETWEEN $start_ns AND $end_ns
)
SELECT
    sum(n_about) FILTER (part = 'baseline') / nullif(sum(n) FILTER (part = 'baseline'), 0) AS reference,
    sum(n_about) FILTER (part = 'incident') / nullif(sum(n) FILTER (part = 'incident'), 0) AS observed,
    sum(n_surely) FILTER (part = 'incident') / nullif(sum(n) FILTER (part = 'incident'), 0) AS least,
    sum(n_at_most) FILTER (part = 'incident') / nullif(sum(n) FILTER (part = 'incident'), 0) AS largest
FROM over
WHERE service IN ($services);
