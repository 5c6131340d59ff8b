-- Stretches of time in which a thread was on a CPU.
CREATE VIEW thread_run AS
WITH next AS (
    SELECT *,
        lead(ts_ns) OVER later AS next_ns,
        lead(is_in) OVER later AS next_is_in,
        lead(state) OVER later AS next_state
    FROM sched_event
    -- Of two events at one time the end comes first: a thread is put back after it was taken off.
    WINDOW later AS (PARTITION BY source_id, pid, tid ORDER BY ts_ns, is_in)
)
SELECT
    -- Source it comes from.
    source_id,
    -- Process id; NULL when unknown.
    pid,
    -- Thread id; NULL when unknown.
    tid,
    -- Number of the CPU.
    cpu,
    -- Start, ns since the Unix epoch.
    ts_ns AS start_ns,
    -- Duration in ns; NULL when its end was not recorded.
    CASE WHEN NOT next_is_in THEN next_ns - ts_ns END AS dur_ns,
    -- State that it was left in, such as 'running' (it could have gone on) or 'interruptible' (it waits); NULL when unknown.
    CASE WHEN NOT next_is_in THEN next_state END AS left_in
FROM next
WHERE is_in;

-- How much of the CPU each thread had, and how often it was taken off although it could have gone on.
CREATE VIEW thread_cpu AS
SELECT
    -- Source it comes from.
    r.source_id AS source_id,
    -- Process id; NULL when unknown.
    r.pid AS pid,
    -- Thread id; NULL when unknown.
    r.tid AS tid,
    -- Name of the thread; NULL when the source does not say.
    any_value(t.name) AS name,
    -- How often it was put on a CPU.
    count(*) AS n_runs,
    -- Time on a CPU, ns.
    CAST(coalesce(sum(r.dur_ns), 0) AS BIGINT) AS on_cpu_ns,
    -- From its first time on a CPU to the end of its last, ns.
    max(r.start_ns + coalesce(r.dur_ns, 0)) - min(r.start_ns) AS span_ns,
    -- CPUs that it ran on.
    count(DISTINCT r.cpu) AS n_cpus,
    -- How often it was taken off while it could have gone on; NULL when the source does not say why
    -- threads that live on were taken off.
    CASE WHEN count(*) FILTER (r.left_in <> 'terminated') > 0
        THEN count(*) FILTER (r.left_in = 'running') END AS n_preempted
FROM thread_run AS r
LEFT JOIN thread AS t
    ON t.source_id = r.source_id
    AND t.pid = r.pid
    AND t.tid = r.tid
GROUP BY r.source_id, r.pid, r.tid;
