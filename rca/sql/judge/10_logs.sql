-- Kinds of log lines whose rate rose most: what each side has of them.
WITH bounds AS (
    SELECT start_ns, end_ns FROM incident_window WHERE status = 'incident' ORDER BY id LIMIT 1
), counted AS (
    SELECT l.template, l.level,
        count(*) FILTER (s.part = 'incident' AND l.ts_ns >= b.start_ns AND l.ts_ns < b.end_ns) AS during,
        count(*) FILTER (s.part = 'baseline' OR l.ts_ns < b.start_ns) AS before
    FROM log AS l JOIN source AS s ON s.id = l.source_id CROSS JOIN bounds AS b
    GROUP BY ALL
)
SELECT template, level, before, during FROM counted
WHERE during > before
ORDER BY during - before DESC, template LIMIT 10;
