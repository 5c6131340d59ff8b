-- Kernels that take most of the incident's GPU time, and their share on each side.
WITH timed AS (
    SELECT g.name, s.part, sum(g.dur_ns)::DOUBLE AS ns
    FROM gpu_op AS g JOIN source AS s ON s.id = g.source_id
    WHERE g.flaw IS NULL AND g.kind = 'kernel' GROUP BY ALL
), total AS (
    SELECT part, sum(ns) AS ns FROM timed GROUP BY part
)
SELECT t.name,
    any_value(t.ns / total.ns) FILTER (t.part = 'baseline') AS reference_share,
    any_value(t.ns / total.ns) FILTER (t.part = 'incident') AS observed_share
FROM timed AS t JOIN total ON total.part = t.part AND total.ns > 0
GROUP BY t.name HAVING observed_share IS NOT NULL
ORDER BY observed_share DESC, t.name LIMIT 8;
