-- What recipes of Nsight Systems say beside what our own tables say of the same, one row a fact.
-- Of summaries both sides must have every name; of lists of events, which stop at 50 rows, each event
-- of theirs must be one of ours.
CREATE VIEW recipe_check AS
WITH summarised AS (
    SELECT source_id, 'cuda_gpu_kern_sum' AS recipe, name, count, total_ns, min_ns, max_ns
    FROM kernel_summary
    UNION ALL
    SELECT source_id, 'cuda_api_sum', name, count, total_ns, min_ns, max_ns
    FROM api_summary
    UNION ALL
    SELECT source_id, 'nvtx_gpu_proj_sum', name, count(*), sum(dur_ns), min(dur_ns), max(dur_ns)
    FROM nvtx_projection
    WHERE dur_ns > 0
    GROUP BY source_id, name
    UNION ALL
    SELECT source_id, 'nccl_gpu_proj_sum', name, count(*), sum(dur_ns), min(dur_ns), max(dur_ns)
    FROM nvtx_projection
    WHERE dur_ns > 0
        AND domain = 'NCCL'
    GROUP BY source_id, name
), told AS (
    -- Nsight takes a version such as _v7000 off a call's name, but none of five digits.
    SELECT *, CASE WHEN recipe LIKE 'cuda_api_%' THEN regexp_replace(name, '_v[0-9]{4,5}$', '')
        ELSE name END AS known_as
    FROM recipe_row
), in_use AS (
    -- What these recipes take for use of a device: its operations, and the profiler's own work in
    -- the process that used it, where that lies within the time of the operations.
    SELECT source_id, pid, device, start_ns, end_ns
    FROM gpu_work
    UNION ALL
    SELECT o.source_id, o.pid, e.device, o.start_ns, o.start_ns + o.dur_ns
    FROM cpu_op AS o
    JOIN (
        SELECT source_id, pid, device, min(start_ns) AS first_ns, max(end_ns) AS last_ns
        FROM gpu_work
        GROUP BY source_id, pid, device
    ) AS e
        ON e.source_id = o.source_id
        AND e.pid = o.pid
        AND o.start_ns > e.first_ns
        AND o.start_ns + o.dur_ns < e.last_ns
    WHERE o.kind = 'overhead'
        AND o.name IN ('CUDA profiling data flush overhead', 'CUDA profiling stop overhead',
            'CUDA profiling overhead')
), stretch AS (
    -- Time in use within a stretch that a recipe lists, summed over operations as the recipe does.
    SELECT r.source_id, r.recipe, r.number, r.dur_ns, r.use_share,
        -- least() passes over NULL: a stretch without use must not count as used.
        coalesce(sum(least(u.end_ns, r.start_ns + r.dur_ns) - greatest(u.start_ns, r.start_ns))
            FILTER (u.pid IS NOT NULL), 0) AS used_ns
    FROM recipe_row AS r
    LEFT JOIN in_use AS u
        ON u.source_id = r.source_id
        AND u.pid = r.pid
        AND u.device = r.device
        AND u.start_ns < r.start_ns + r.dur_ns
        AND u.end_ns > r.start_ns
    WHERE r.recipe IN ('gpu_gaps', 'gpu_time_util')
    GROUP BY r.source_id, r.recipe, r.number, r.dur_ns, r.use_share
), compared AS (
    SELECT coalesce(t.source_id, s.source_id) AS source_id, coalesce(t.recipe, s.recipe) AS recipe,
        coalesce(t.known_as, s.name) AS name,
        'count ' || t.count || ', total ' || t.total_ns || ', ' || t.min_ns || ' to ' || t.max_ns
            AS theirs,
        'count ' || s.count || ', total ' || s.total_ns || ', ' || s.min_ns || ' to ' || s.max_ns
            AS ours
    FROM (FROM told WHERE count IS NOT NULL) AS t
    FULL JOIN (
        -- A recipe that was not run says nothing.
        SELECT s.*
        FROM summarised AS s
        JOIN recipe_run AS r
            ON r.source_id = s.source_id
            AND r.recipe = s.recipe
            AND r.status IN ('rows', 'no_data')
    ) AS s
        ON s.source_id = t.source_id
        AND s.recipe = t.recipe
        AND s.name = t.known_as
    UNION ALL
    SELECT t.source_id, t.recipe, t.known_as, 'at ' || t.start_ns || ' for ' || t.dur_ns,
        'at ' || c.start_ns || ' for ' || c.dur_ns
    FROM told AS t
    LEFT JOIN cpu_op AS c
        ON c.source_id = t.source_id
        AND c.start_ns = t.start_ns
        AND c.dur_ns = t.dur_ns
        AND c.tid = t.tid
        AND c.kind IN ('runtime', 'driver')
    WHERE t.recipe = 'cuda_api_sync'
    UNION ALL
    SELECT t.source_id, t.recipe, t.name,
        t.bytes || ' bytes at ' || t.start_ns || ' for ' || t.dur_ns,
        w.bytes || ' bytes at ' || w.start_ns || ' for ' || w.dur_ns
    FROM recipe_row AS t
    LEFT JOIN gpu_op AS w
        ON w.source_id = t.source_id
        AND w.start_ns = t.start_ns
        AND w.dur_ns = t.dur_ns
        AND w.device = t.device
        AND w.kind = 'memcpy'
    WHERE t.recipe IN ('cuda_memcpy_sync', 'cuda_memcpy_async')
    UNION ALL
    SELECT source_id, recipe, NULL, 'idle for ' || dur_ns, 'idle for ' || (dur_ns - used_ns)
    FROM stretch
    WHERE recipe = 'gpu_gaps'
    UNION ALL
    SELECT source_id, recipe, NULL,
        'in use for ' || round(100 * use_share, 1) || ' % of ' || dur_ns,
        'in use for ' || round(100 * used_ns / dur_ns, 1) || ' % of ' || dur_ns
    FROM stretch
    WHERE recipe = 'gpu_time_util'
)
SELECT
    -- The report.
    source_id,
    -- Name of the recipe.
    recipe,
    -- Kernel, call or range; NULL for stretches of time.
    name,
    -- What the recipe says; times in ns. NULL when it does not have it.
    theirs,
    -- What our tables say; NULL when they do not have it.
    ours,
    -- Whether both say the same.
    coalesce(theirs = ours, false) AS agrees
FROM compared;
