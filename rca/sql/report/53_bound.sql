-- Share of each state in the spans of all devices, by side, largest first; of a capture that names no device its own.
WITH chosen AS (
    SELECT s.part, b.bound, b.ns
    FROM gpu_bound AS b
    JOIN source AS s ON s.id = b.source_id
    WHERE b.device IS NOT NULL
        OR b.source_id NOT IN (SELECT source_id FROM gpu_breakdown WHERE device IS NOT NULL)
)
SELECT part, bound, sum(ns) / sum(sum(ns)) OVER (PARTITION BY part) AS share
FROM chosen
GROUP BY part, bound
HAVING sum(ns) > 0
ORDER BY part, share DESC, bound;
