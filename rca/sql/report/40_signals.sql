-- Some signals in about 120 steps of time each, in the incident's recordings. Asked for together,
-- since the view is worked out once a query. $1 roles, $2 services, $3 sources: lists of one length.
WITH wanted AS (
    SELECT
        unnest(range(len($1))) AS place,
        unnest($1) AS role,
        unnest($2) AS service,
        unnest($3) AS source
),
chosen AS (
    SELECT w.place, v.ts_ns, v.num, v.den
    FROM signal_value AS v
    JOIN wanted AS w ON w.role = v.role AND w.service = v.service AND w.source = v.source
    WHERE v.part = 'incident' AND list_contains($1, v.role)
),
step AS (
    SELECT place, greatest((max(ts_ns) - min(ts_ns)) // 120, 1_000_000_000) AS width_ns
    FROM chosen
    GROUP BY place
)
SELECT
    -- Place of the signal in the lists that were asked for, from 0.
    place,
    -- Middle of the step, ns since the Unix epoch.
    (ts_ns // width_ns) * width_ns + width_ns // 2 AS ts_ns,
    -- Value of the signal over the step.
    sum(num) / sum(den) AS value
FROM chosen
JOIN step USING (place)
GROUP BY ALL
HAVING sum(den) > 0
ORDER BY ALL;
