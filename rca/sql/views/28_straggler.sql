-- Steps of a loop as recordings mark them: PyTorch Profiler's steps, vLLM's execute_context ranges, and
-- ranges named 'step' with a number.
CREATE VIEW rank_step AS
SELECT
    -- Source it comes from.
    source_id,
    -- Name of the step.
    name,
    -- Start, ns since the Unix epoch.
    start_ns,
    -- Duration on the CPU, ns.
    dur_ns
FROM cpu_op
WHERE kind IN ('annotation', 'nvtx')
    AND flaw IS NULL
    AND regexp_matches(name, '^(ProfilerStep#|execute_context_|step[ _#:]?)[0-9]');

-- The group in which each recording exchanges most: the one whose kernels took longest, else the one that
-- most calls name, else the only one that is declared for GPUs and has others in it. Ranks of such a group
-- do the same work and wait for each other; those of another may have another part of the model.
CREATE VIEW rank_group AS
WITH used AS (
    SELECT c.source_id, c.group_name, c.group_ranks,
        coalesce(sum(g.dur_ns) FILTER (g.flaw IS NULL), 0) AS gpu_ns, count(*) AS n
    FROM collective AS c
    LEFT JOIN gpu_op AS g ON g.source_id = c.source_id AND g.id = c.id
    WHERE coalesce(c.group_size, 2) > 1
    GROUP BY c.source_id, c.group_name, c.group_ranks
), most AS (
    FROM used
    QUALIFY row_number() OVER (
        PARTITION BY source_id ORDER BY gpu_ns DESC, n DESC, group_name, group_ranks) = 1
), declared AS (
    SELECT source_id, min(name) AS group_name, min(ranks) AS group_ranks
    FROM process_group
    WHERE size > 1 AND regexp_matches(coalesce(backend, 'nccl'), 'nccl|rccl')
    GROUP BY source_id
    HAVING count(DISTINCT ranks) = 1
)
SELECT
    -- Source that recorded it.
    coalesce(m.source_id, d.source_id) AS source_id,
    -- Name of the group in the job; NULL when the source does not say.
    coalesce(m.group_name, d.group_name) AS group_name,
    -- Its ranks as JSON; where the operation leaves some out, as the job declares them.
    CASE WHEN m.source_id IS NULL THEN d.group_ranks
         WHEN m.group_ranks IS NULL OR contains(m.group_ranks, '...')
         THEN coalesce(p.ranks, m.group_ranks)
         ELSE m.group_ranks END AS group_ranks
FROM most AS m
FULL JOIN declared AS d ON d.source_id = m.source_id
LEFT JOIN process_group AS p ON p.source_id = m.source_id AND p.name = m.group_name;

-- Where the time of each rank went, for one step: of the recording's span, the part in which nothing
-- but communication ran is waiting (a collective ends for all when the last rank has come), the rest is
-- the rank's own. Recordings without steps are one step as a whole.
CREATE VIEW rank_time AS
WITH steps AS (
    SELECT source_id, count(*) AS n_steps, median(dur_ns) AS step_ns
    FROM rank_step
    GROUP BY source_id
)
SELECT
    -- Source that recorded it.
    s.id AS source_id,
    -- 'incident' or 'baseline'.
    s.part AS part,
    -- Machine; NULL when the file does not say.
    s.host AS host,
    -- Rank in its job; NULL when the file does not say.
    s.rank AS rank,
    -- Ranks in the job; NULL when the file does not say.
    s.world_size AS world_size,
    -- Ranks of the group in which it exchanges most, as JSON; NULL when the file does not say.
    r.group_ranks AS group_ranks,
    -- Steps in the recording; 0 when it marks none.
    coalesce(t.n_steps, 0) AS n_steps,
    -- Median duration of a step on the CPU, ns; NULL without steps.
    t.step_ns AS step_ns,
    -- Span of the GPU work, ns a step.
    b.span_ns / greatest(n_steps, 1) AS span_ns,
    -- Only communication ran, ns a step.
    (b.comm_ns - b.overlap_ns) / greatest(n_steps, 1) AS wait_ns,
    -- At least one kernel ran that is no communication, ns a step.
    b.compute_ns / greatest(n_steps, 1) AS compute_ns,
    -- Only copies or memory sets ran, ns a step.
    (b.busy_ns - b.compute_ns - b.comm_ns + b.overlap_ns) / greatest(n_steps, 1) AS copy_ns,
    -- Nothing ran on the GPU, ns a step: it waited for the CPU.
    b.idle_ns / greatest(n_steps, 1) AS idle_ns,
    -- Span without waiting: compute_ns + copy_ns + idle_ns, ns a step.
    (b.span_ns - b.comm_ns + b.overlap_ns) / greatest(n_steps, 1) AS own_ns
FROM source AS s
JOIN gpu_breakdown AS b ON b.source_id = s.id AND b.device IS NULL AND b.span_ns > 0
LEFT JOIN rank_group AS r ON r.source_id = s.id
LEFT JOIN steps AS t ON t.source_id = s.id;

-- Robust z: distance from the median in units of 1.4826 times the median absolute deviation, which is
-- the standard deviation of normal values (Iglewicz and Hoaglin 1993, who call 3.5 an outlier). A
-- deviation below 1 % of the median counts as 1 %: differences that small matter to nobody.
CREATE MACRO robust_z(value, middle, deviation) AS
    (value - middle) / nullif(greatest(1.4826 * deviation, 0.01 * abs(middle)), 0);

-- Ranks held against all others of the same part, size of job, and group of ranks.
CREATE VIEW straggler AS
WITH usual AS (
    SELECT part, world_size, group_ranks, count(*) AS n_ranks,
        median(step_ns) AS step_ns, mad(step_ns) AS step_mad,
        median(own_ns) AS own_ns, mad(own_ns) AS own_mad,
        median(wait_ns) AS wait_ns, mad(wait_ns) AS wait_mad,
        median(compute_ns) AS compute_ns, median(copy_ns) AS copy_ns, median(idle_ns) AS idle_ns
    FROM rank_time
    GROUP BY part, world_size, group_ranks
), measured AS (
    SELECT t.*, u.n_ranks,
        robust_z(t.step_ns, u.step_ns, u.step_mad) AS step_z,
        robust_z(t.own_ns, u.own_ns, u.own_mad) AS own_z,
        robust_z(t.wait_ns, u.wait_ns, u.wait_mad) AS wait_z,
        t.compute_ns - u.compute_ns AS more_compute,
        t.copy_ns - u.copy_ns AS more_copy,
        t.idle_ns - u.idle_ns AS more_idle
    FROM rank_time AS t
    JOIN usual AS u ON u.part = t.part AND u.world_size IS NOT DISTINCT FROM t.world_size
        AND u.group_ranks IS NOT DISTINCT FROM t.group_ranks
)
SELECT
    -- Source that recorded it.
    source_id,
    -- 'incident' or 'baseline'.
    part,
    -- Machine; NULL when the file does not say.
    host,
    -- Rank in its job; NULL when the file does not say.
    rank,
    -- Ranks of the group in which it exchanges most, as JSON; NULL when the file does not say.
    group_ranks,
    -- Ranks that it is held against, itself among them.
    n_ranks,
    -- Steps in the recording; 0 when it marks none, and then times are those of the whole.
    n_steps,
    -- Median duration of a step on the CPU, ns; NULL without steps.
    step_ns,
    -- Own time, ns a step; the rank with the most is the one that others wait for.
    own_ns,
    -- Time in which only communication ran, ns a step.
    wait_ns,
    -- Time in which a kernel ran that is no communication, ns a step.
    compute_ns,
    -- Time in which only copies ran, ns a step.
    copy_ns,
    -- Time in which the GPU had nothing to do, ns a step.
    idle_ns,
    -- Robust z of step_ns; NULL without steps.
    step_z,
    -- Robust z of own_ns.
    own_z,
    -- Robust z of wait_ns; NULL when nobody communicates. The straggler's is low: it comes last.
    wait_z,
    -- Whether its own time is far above the others' (robust z over 3.5); NULL below four ranks, where
    -- the middle of the others is not known well enough.
    CASE WHEN n_ranks >= 4 THEN own_z > 3.5 END AS is_straggler,
    -- What it has more of than the others: 'compute', 'copy', 'idle' (its CPU is late); NULL when its
    -- own time is not above the middle.
    CASE
        WHEN greatest(more_compute, more_copy, more_idle) <= 0 OR own_z <= 0 THEN NULL
        WHEN more_compute >= greatest(more_copy, more_idle) THEN 'compute'
        WHEN more_idle >= more_copy THEN 'idle'
        ELSE 'copy'
    END AS more_of
FROM measured;

-- Hosts held against all others of the same part, by the median of their ranks.
CREATE VIEW straggling_host AS
WITH hosts AS (
    SELECT part, host, count(*) AS n_ranks, median(own_ns) AS own_ns, median(wait_ns) AS wait_ns
    FROM rank_time
    WHERE host IS NOT NULL
    GROUP BY part, host
), usual AS (
    SELECT part, count(*) AS n_hosts, median(own_ns) AS middle, mad(own_ns) AS deviation
    FROM hosts
    GROUP BY part
)
SELECT
    -- 'incident' or 'baseline'.
    h.part AS part,
    -- Machine.
    h.host AS host,
    -- Ranks on it.
    h.n_ranks AS n_ranks,
    -- Median own time of its ranks, ns a step.
    h.own_ns AS own_ns,
    -- Median time of its ranks in which only communication ran, ns a step.
    h.wait_ns AS wait_ns,
    -- Robust z of own_ns among the hosts.
    robust_z(h.own_ns, u.middle, u.deviation) AS own_z,
    -- Whether own_z is over 3.5; NULL below four hosts.
    CASE WHEN u.n_hosts >= 4 THEN robust_z(h.own_ns, u.middle, u.deviation) > 3.5 END AS is_straggler
FROM hosts AS h
JOIN usual AS u ON u.part = h.part;
