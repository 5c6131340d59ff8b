-- How fast the allocated memory of profiles grew, by side.
WITH profile AS (
    SELECT any_value(s.part) AS part,
        max_by(m.allocated_bytes, m.ts_ns) - min_by(m.allocated_bytes, m.ts_ns) AS grown,
        (max(m.ts_ns) - min(m.ts_ns)) / 1e9 AS seconds
    FROM memory_event AS m
    JOIN source AS s ON s.id = m.source_id
    WHERE m.allocated_bytes IS NOT NULL
    GROUP BY m.source_id
    HAVING seconds > 0
)
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- Bytes a second.
    sum(grown) / sum(seconds) AS growth
FROM profile
GROUP BY part;
