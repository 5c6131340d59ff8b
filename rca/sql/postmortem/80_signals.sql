-- One signal in about 120 steps of time, in the incident's recordings.
WITH chosen AS (
    SELECT ts_ns, num, den
    FROM signal_value
    WHERE part = 'incident' AND role = ? AND service = ? AND source = ?
),
step AS (
    SELECT greatest((max(ts_ns) - min(ts_ns)) // 120, 1_000_000_000) AS width_ns FROM chosen
)
SELECT
    -- Middle of the step, ns since the Unix epoch.
    (ts_ns // width_ns) * width_ns + width_ns // 2 AS ts_ns,
    -- Value of the signal over the step.
    sum(num) / sum(den) AS value
FROM chosen, step
GROUP BY 1
HAVING sum(den) > 0
ORDER BY 1;
