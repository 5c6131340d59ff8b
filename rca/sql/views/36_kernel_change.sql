-- Kernels of the incident's captures against the baseline's: gone, new, or the same with other
-- shapes, called more or less often among the rest, or only slower. Times compare runs of the same
-- launch shape, so that larger inputs do not pass for slower kernels. Runs that follow each other are
-- alike: the interval of a time rests on twenty stretches of each side, not on single runs.
CREATE VIEW kernel_change AS
WITH run AS (
    SELECT s.part, o.name, coalesce(o.grid, '') || '/' || coalesce(o.block, '') AS shape, o.dur_ns,
        o.source_id, o.start_ns, o.id
    FROM gpu_op AS o
    JOIN source AS s ON s.id = o.source_id
    WHERE o.kind = 'kernel' AND o.flaw IS NULL
), shaped AS (
    SELECT name, shape,
        count(*) FILTER (part = 'baseline') AS n_baseline,
        count(*) FILTER (part = 'incident') AS n_incident,
        avg(dur_ns) FILTER (part = 'baseline') AS baseline_ns,
        avg(dur_ns) FILTER (part = 'incident') AS incident_ns
    FROM run
    GROUP BY name, shape
), kernel AS (
    SELECT name,
        CAST(sum(n_baseline) AS BIGINT) AS n_baseline,
        CAST(sum(n_incident) AS BIGINT) AS n_incident,
        coalesce(sum(n_baseline * baseline_ns), 0) AS baseline_ns,
        coalesce(sum(n_incident * incident_ns), 0) AS incident_ns,
        sum(n_incident) FILTER (n_baseline = 0) / nullif(sum(n_incident), 0) AS other_shapes,
        sum(n_incident * incident_ns) FILTER (n_baseline > 0)
            / nullif(sum(n_incident * baseline_ns) FILTER (n_baseline > 0), 0) AS time_ratio
    FROM shaped
    GROUP BY name
), stretch AS (
    SELECT name, part, count(*) AS n, sum(dur_ns) AS dur_ns, sum(usual_ns) AS usual_ns
    FROM (
        SELECT r.name, r.part, r.dur_ns, s.baseline_ns AS usual_ns,
            ntile(20) OVER (PARTITION BY r.name, r.part ORDER BY r.source_id, r.start_ns, r.id) AS place
        FROM run AS r
        JOIN shaped AS s ON s.name = r.name AND s.shape = r.shape
        WHERE s.n_baseline > 0 AND s.n_incident > 0 AND s.baseline_ns > 0
    )
    GROUP BY name, part, place
), level AS (
    SELECT name, part, sum(n) AS n, sum(dur_ns) / sum(usual_ns) AS ratio, sum(usual_ns) AS usual_ns
    FROM stretch
    GROUP BY name, part
), spread AS (
    -- Relative variance of the ratio of sums, by what each stretch strays from it.
    SELECT s.name, s.part, any_value(l.n) AS n,
        20.0 / 19 * sum((s.dur_ns - l.ratio * s.usual_ns) ** 2)
            / any_value(l.usual_ns ** 2) / any_value(l.ratio ** 2) AS variance
    FROM stretch AS s
    JOIN level AS l ON l.name = s.name AND l.part = s.part
    GROUP BY s.name, s.part
), error AS (
    -- Twice twenty stretches: 2.024 is Student's 97.5 % at 38 degrees of freedom.
    SELECT name, 2.024 * sqrt(sum(variance)) AS margin
    FROM spread
    GROUP BY name
    HAVING min(n) >= 40 AND count(*) = 2
), usual AS (
    -- Captures are of different lengths: the kernels together say by how much.
    SELECT median(n_incident / n_baseline) AS count_ratio
    FROM kernel
    WHERE n_baseline > 0 AND n_incident > 0
)
SELECT
    -- Name of the kernel.
    k.name,
    -- 'gone', 'new', 'shape' (a fifth of its runs have a launch shape not seen before), 'count' (its number moved by a fifth against the rest), 'time' (a tenth slower or faster at the same shapes) or 'same'; the first that holds.
    CASE
        WHEN k.n_incident = 0 THEN 'gone'
        WHEN k.n_baseline = 0 THEN 'new'
        WHEN coalesce(k.other_shapes, 0) > 0.2 THEN 'shape'
        WHEN abs(ln((k.n_incident / k.n_baseline) / u.count_ratio)) > ln(1.2) THEN 'count'
        WHEN abs(ln(k.time_ratio)) > ln(1.1) THEN 'time'
        ELSE 'same'
    END AS change,
    -- Runs in the baseline.
    k.n_baseline,
    -- Runs in the incident.
    k.n_incident,
    -- Its share of the kernels' time in the baseline, 0 to 1.
    k.baseline_ns / nullif(sum(k.baseline_ns) OVER (), 0) AS share_baseline,
    -- Its share of the kernels' time in the incident, 0 to 1.
    k.incident_ns / nullif(sum(k.incident_ns) OVER (), 0) AS share_incident,
    -- Number of its runs against the baseline, other lengths of the captures taken out; NULL unless on both sides.
    (k.n_incident / nullif(k.n_baseline, 0)) / u.count_ratio AS count_ratio,
    -- Mean time against the baseline over launch shapes of both; NULL when there is none.
    k.time_ratio,
    -- Lower end of its 95 % interval, from the spread of twenty stretches of each side in their order; NULL below forty runs of shared shapes on either side.
    k.time_ratio * exp(-e.margin) AS time_low,
    -- Upper end of it; NULL as time_low.
    k.time_ratio * exp(e.margin) AS time_high
FROM kernel AS k
CROSS JOIN usual AS u
LEFT JOIN error AS e ON e.name = k.name
-- Without a capture on both sides there is nothing to compare.
WHERE EXISTS (SELECT 1 FROM kernel WHERE n_baseline > 0)
    AND EXISTS (SELECT 1 FROM kernel WHERE n_incident > 0);
