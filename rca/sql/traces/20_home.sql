-- Traces of which several sources of one part hold a piece; $1: digits from which on an id is sure.
INSERT INTO trace_home
WITH piece AS (
    SELECT DISTINCT s.part, x.source_id, x.trace_id
    FROM span AS x JOIN source AS s ON s.id = x.source_id
),
spread AS (
    SELECT part, trace_id, min(source_id) AS home_id
    FROM piece
    GROUP BY part, trace_id
    HAVING count(*) > 1
),
-- A parent in another source makes one trace of the two, whatever its id looks like.
linked AS (
    SELECT DISTINCT w.part, w.trace_id
    FROM spread AS w
    JOIN span AS c ON c.trace_id = w.trace_id
    JOIN source AS cs ON cs.id = c.source_id AND cs.part = w.part
    JOIN span AS p ON p.trace_id = c.trace_id AND p.span_id = c.parent_id AND p.source_id <> c.source_id
    JOIN source AS ps ON ps.id = p.source_id AND ps.part = w.part
    WHERE length(w.trace_id) < $1
)
SELECT p.source_id, p.trace_id, w.home_id
FROM piece AS p
JOIN spread AS w ON w.part = p.part AND w.trace_id = p.trace_id
WHERE p.source_id <> w.home_id
    AND (length(p.trace_id) >= $1 OR (p.part, p.trace_id) IN (SELECT part, trace_id FROM linked))
ORDER BY ALL;
