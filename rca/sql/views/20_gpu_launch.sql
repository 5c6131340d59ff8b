-- How much of an interval lies beyond what earlier ones have covered; NULL when there are none.
CREATE MACRO beyond(start_ns, end_ns, covered_ns) AS
    greatest(0, end_ns - greatest(start_ns, coalesce(covered_ns, start_ns)));

-- Sound GPU work with its end and its class: what every view below is made of. Accelerators other
-- than GPUs are left out: what of their activity is work and what is control is not known.
CREATE VIEW gpu_work AS
SELECT
    -- Source it comes from.
    source_id,
    -- Number of the operation in its source.
    id,
    -- Device number; NULL when the source does not say.
    device,
    -- Process that launched it, or the number of its track; NULL when unknown.
    pid,
    -- 'kernel', 'memcpy' or 'memset'.
    kind,
    -- 'comm' (kernels of a collective library), 'compute' (all other kernels) or 'mem'.
    CASE WHEN kind <> 'kernel' THEN 'mem'
         WHEN regexp_matches(name, '^(void )?(nccl|rccl|mscclpp)', 'i') THEN 'comm'
         ELSE 'compute' END AS class,
    -- Start, ns since the Unix epoch.
    start_ns,
    -- End, ns since the Unix epoch.
    start_ns + dur_ns AS end_ns,
    -- Number shared with the launching call; NULL when unknown.
    correlation
FROM gpu_op
WHERE flaw IS NULL
    AND kind IN ('kernel', 'memcpy', 'memset');

-- Where a correlation is unique: Nsight counts for each process. A profiler trace is one process, and
-- the process of its GPU rows is the number of a track.
CREATE MACRO launch_scope(source_kind, pid) AS
    CASE WHEN source_kind = 'nsys' THEN coalesce(pid, -1) ELSE -1 END;

-- Calls that can launch GPU work, one for each correlation: the first where several carry it.
CREATE VIEW launch_call AS
SELECT
    -- Source it comes from.
    c.source_id AS source_id,
    -- Number shared with the GPU operations.
    c.correlation AS correlation,
    -- Process whose count it is; -1 where the source has one count for all.
    launch_scope(s.kind, c.pid) AS scope,
    -- `id` of the call.
    arg_min(c.id, (c.start_ns, c.id)) AS id,
    -- Start of the call, ns since the Unix epoch.
    min(c.start_ns) AS start_ns
FROM cpu_op AS c
JOIN source AS s ON s.id = c.source_id
WHERE c.kind IN ('runtime', 'driver')
    AND c.correlation IS NOT NULL
GROUP BY ALL;

-- Which call launched which GPU operation. A graph launch has many operations for one call.
CREATE VIEW launch AS
SELECT
    -- Source both come from.
    w.source_id AS source_id,
    -- `id` of the GPU operation.
    w.id AS gpu_op_id,
    -- `id` of the runtime or driver call.
    l.id AS cpu_op_id,
    -- Device of the operation; NULL when the source does not say.
    w.device AS device,
    -- 'kernel', 'memcpy' or 'memset'.
    w.kind AS kind,
    -- Start of the call, ns since the Unix epoch.
    l.start_ns AS call_ns,
    -- From the start of the call to the start of the operation, ns; negative when clocks disagree.
    w.start_ns - l.start_ns AS delay_ns
FROM gpu_work AS w
JOIN source AS s ON s.id = w.source_id
JOIN launch_call AS l
    ON l.source_id = w.source_id
    AND l.correlation = w.correlation
    AND l.scope = launch_scope(s.kind, w.pid);
