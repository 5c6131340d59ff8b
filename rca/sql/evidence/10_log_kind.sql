-- Lines of those kinds of log lines whose number may have moved between $1 and $2 (ns since the Unix epoch), at most $3
-- kinds: warnings and errors first, then those whose number is furthest from what the rest of the time lets expect.
WITH line AS MATERIALIZED (
    SELECT *, part = 'incident' AND ts_ns BETWEEN $1 AND $2 AS is_inside FROM log_kind
),
covered AS (
    SELECT count(*) FILTER (part = 'incident' AND ts_ns BETWEEN $1 AND $2) / nullif(count(*), 0) AS share
    FROM logged_bin
),
kind AS (
    SELECT template, bool_or(is_bad) AS is_bad, CASE WHEN count(DISTINCT service) = 1 THEN min(service) END AS service
    FROM line
    CROSS JOIN covered
    GROUP BY template, share
    ORDER BY bool_or(is_bad) DESC,
        abs(sqrt(coalesce(sum(lines) FILTER (is_inside), 0)) - sqrt(sum(lines) * share)) DESC, template
    LIMIT $3
)
SELECT k.template, k.is_bad, k.service, l.part, l.ts_ns, CAST(l.lines AS DOUBLE) AS lines
FROM kind AS k
JOIN line AS l ON l.template = k.template
ORDER BY k.template, l.part, l.ts_ns;
