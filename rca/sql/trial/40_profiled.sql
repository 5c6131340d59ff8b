-- Operators and allocations of a step, by side; at least five steps.
WITH step AS (
    SELECT source_id, count(*) AS n
    FROM cpu_op
    WHERE kind = 'annotation' AND (name LIKE 'execute_%' OR name LIKE 'ProfilerStep%')
    GROUP BY source_id
),
counted AS (
    SELECT s.part, step.n,
        (SELECT count(*) FROM cpu_op AS o WHERE o.source_id = s.id AND o.kind = 'op') AS ops,
        (SELECT count(*) FROM memory_event AS m WHERE m.source_id = s.id AND m.delta_bytes > 0) AS allocations
    FROM source AS s
    JOIN step ON step.source_id = s.id
)
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- Operators a step.
    sum(ops) / sum(n) AS ops,
    -- Allocations a step; NULL where memory was not profiled.
    nullif(sum(allocations) / sum(n), 0) AS allocations
FROM counted
GROUP BY part
HAVING sum(n) >= 5 AND sum(ops) > 0;
