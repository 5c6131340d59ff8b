-- Unions of the intervals of GPU work, under each device and under NULL for all devices together.
-- The running maximum of the ends so far tells how much of an operation lies beyond what went before
-- it: the sum of those parts is the length of the union, with one sort and no list of gaps.
CREATE MACRO gpu_unions(launched_only) AS TABLE
WITH work AS (
    -- Narrow rows: the sort below moves all of them. A test for membership needs no distinct calls.
    SELECT w.source_id, w.device, w.start_ns, w.end_ns,
        CASE w.kind WHEN 'kernel' THEN 0 WHEN 'memcpy' THEN 1 ELSE 2 END AS kind,
        CASE w.class WHEN 'compute' THEN 0 WHEN 'comm' THEN 1 ELSE 2 END AS class,
        coalesce(
            (w.source_id, w.correlation, launch_scope(s.kind, w.pid)) IN (
                SELECT (c.source_id, c.correlation, launch_scope(o.kind, c.pid))
                FROM cpu_op AS c
                JOIN source AS o ON o.id = c.source_id
                WHERE c.kind IN ('runtime', 'driver')
                    AND c.correlation IS NOT NULL),
            false) AS is_launched
    FROM gpu_work AS w
    JOIN source AS s ON s.id = w.source_id
    WHERE NOT launched_only OR is_launched
), alone AS (
    -- Sources with one device: what it did is what all did, and is not worked out twice.
    SELECT source_id
    FROM work
    GROUP BY source_id
    HAVING min(device) = max(device) AND count(device) = count(*)
), grouped AS (
    SELECT source_id, device, false AS is_total, * EXCLUDE (source_id, device)
    FROM work
    WHERE device IS NOT NULL
    UNION ALL
    SELECT source_id, NULL, true, * EXCLUDE (source_id, device)
    FROM work
    WHERE source_id NOT IN (FROM alone)
), reached AS (
    SELECT *,
        max(end_ns) OVER so_far AS any_end,
        max(CASE WHEN kind = 0 THEN end_ns END) OVER so_far AS kernel_end,
        max(CASE WHEN class = 0 THEN end_ns END) OVER so_far AS compute_end,
        max(CASE WHEN class = 1 THEN end_ns END) OVER so_far AS comm_end,
        max(CASE WHEN class = 2 THEN end_ns END) OVER so_far AS mem_end
    FROM grouped
    WINDOW so_far AS (
        PARTITION BY source_id, is_total, device ORDER BY start_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), total AS (
    SELECT source_id, is_total, device,
        count(*) FILTER (kind = 0) AS n_kernel,
        count(*) FILTER (kind = 1) AS n_memcpy,
        count(*) FILTER (kind = 2) AS n_memset,
        min(start_ns) AS first_ns,
        max(end_ns) AS last_ns,
        sum(beyond(start_ns, end_ns, any_end)) AS busy_ns,
        sum(beyond(start_ns, end_ns, kernel_end)) FILTER (kind = 0) AS kernel_busy_ns,
        sum(beyond(start_ns, end_ns, compute_end)) FILTER (class = 0) AS compute_ns,
        sum(beyond(start_ns, end_ns, comm_end)) FILTER (class = 1) AS comm_ns,
        sum(beyond(start_ns, end_ns, mem_end)) FILTER (class = 2) AS mem_ns,
        sum(end_ns - start_ns) FILTER (kind = 0) AS kernel_sum_ns,
        count(*) FILTER (is_launched) AS n_launched
    FROM reached
    GROUP BY source_id, is_total, device
)
FROM total
UNION ALL
SELECT * REPLACE (NULL AS device, true AS is_total)
FROM total
WHERE source_id IN (FROM alone);

-- The figures of both views below.
CREATE MACRO gpu_figures(launched_only) AS TABLE
SELECT
    s.id AS source_id,
    u.device AS device,
    coalesce(u.n_kernel, 0) AS n_kernel,
    coalesce(u.n_memcpy, 0) AS n_memcpy,
    coalesce(u.n_memset, 0) AS n_memset,
    u.first_ns AS first_ns,
    u.last_ns AS last_ns,
    coalesce(u.last_ns - u.first_ns, 0) AS span_ns,
    CAST(coalesce(u.busy_ns, 0) AS BIGINT) AS busy_ns,
    CAST(coalesce(u.last_ns - u.first_ns - u.busy_ns, 0) AS BIGINT) AS idle_ns,
    CAST(coalesce(u.compute_ns, 0) AS BIGINT) AS compute_ns,
    CAST(coalesce(u.comm_ns, 0) AS BIGINT) AS comm_ns,
    CAST(coalesce(u.mem_ns, 0) AS BIGINT) AS mem_ns,
    CAST(coalesce(u.compute_ns, 0) + coalesce(u.comm_ns, 0) - coalesce(u.kernel_busy_ns, 0)
        AS BIGINT) AS overlap_ns,
    CAST(coalesce(u.kernel_sum_ns, 0) AS BIGINT) AS kernel_sum_ns,
    coalesce(u.n_launched, 0) AS n_launched,
    coalesce(u.n_kernel + u.n_memcpy + u.n_memset - u.n_launched, 0) AS n_unlaunched
FROM source AS s
LEFT JOIN gpu_unions(launched_only) AS u ON u.source_id = s.id
WHERE s.kind IN ('torch_profiler', 'nsys');

-- What each device did, and all devices together (device NULL): lengths of unions of intervals, ns
-- exact. A GPU recording without GPU work has one row of zeros with NULL times.
CREATE VIEW gpu_breakdown AS
SELECT
    -- Source that recorded it.
    source_id,
    -- Device number; NULL in the row for all devices together.
    device,
    -- Kernels.
    n_kernel,
    -- Copies.
    n_memcpy,
    -- Memory sets.
    n_memset,
    -- Start of the first operation, ns since the Unix epoch; NULL when there is none.
    first_ns,
    -- End of the last operation, ns since the Unix epoch; NULL when there is none.
    last_ns,
    -- From first_ns to last_ns, ns.
    span_ns,
    -- Time in which at least one operation ran, ns.
    busy_ns,
    -- Rest of the span, ns.
    idle_ns,
    -- Time in which at least one kernel ran that is no communication, ns.
    compute_ns,
    -- Time in which at least one communication kernel ran, ns.
    comm_ns,
    -- Time in which at least one copy or memory set ran, ns.
    mem_ns,
    -- Time in which computation and communication ran at once, ns.
    overlap_ns,
    -- Sum of the durations of all kernels, ns.
    kernel_sum_ns,
    -- Operations whose launching call is in the source.
    n_launched,
    -- Operations launched before the recording began, or whose call was not recorded.
    n_unlaunched
FROM gpu_figures(false);

-- The same over operations that have a launch in the recording, which is what tools report that
-- cannot see the others.
CREATE VIEW gpu_breakdown_launched AS
SELECT
    -- Source that recorded it.
    source_id,
    -- Device number; NULL in the row for all devices together.
    device,
    -- Kernels.
    n_kernel,
    -- Copies.
    n_memcpy,
    -- Memory sets.
    n_memset,
    -- Start of the first operation, ns since the Unix epoch; NULL when there is none.
    first_ns,
    -- End of the last operation, ns since the Unix epoch; NULL when there is none.
    last_ns,
    -- From first_ns to last_ns, ns.
    span_ns,
    -- Time in which at least one operation ran, ns.
    busy_ns,
    -- Rest of the span, ns.
    idle_ns,
    -- Time in which at least one kernel ran that is no communication, ns.
    compute_ns,
    -- Time in which at least one communication kernel ran, ns.
    comm_ns,
    -- Time in which at least one copy or memory set ran, ns.
    mem_ns,
    -- Time in which computation and communication ran at once, ns.
    overlap_ns,
    -- Sum of the durations of all kernels, ns.
    kernel_sum_ns,
    -- Operations whose launching call is in the source.
    n_launched,
    -- Operations launched before the recording began, or whose call was not recorded.
    n_unlaunched
FROM gpu_figures(true);
