-- Phases of the incident: how many slices of the recording each has, in how many stretches, and the longest of them.
WITH slice AS (
    SELECT id, name, size, unnest(CAST(members AS BIGINT[])) AS ts_ns
    FROM pattern
    WHERE kind = 'signal'
),
step AS (
    SELECT min(next_ns - ts_ns) AS width_ns
    FROM (SELECT ts_ns, lead(ts_ns) OVER (ORDER BY ts_ns) AS next_ns FROM slice)
),
run AS (
    SELECT *, row_number() OVER (ORDER BY ts_ns) - row_number() OVER (PARTITION BY id ORDER BY ts_ns) AS run
    FROM slice
),
stretch AS (
    SELECT id, name, size, min(ts_ns) AS start_ns, max(ts_ns) + any_value(width_ns) AS end_ns, count(*) AS n
    FROM run
    CROSS JOIN step
    GROUP BY id, name, size, run
)
SELECT name, size, count(*) AS stretches,
    first(start_ns ORDER BY n DESC, start_ns) AS start_ns,
    first(end_ns ORDER BY n DESC, start_ns) AS end_ns
FROM stretch
GROUP BY id, name, size
ORDER BY id;
