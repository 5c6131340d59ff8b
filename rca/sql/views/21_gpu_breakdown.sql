-- GPU work twice: once under its device and once under NULL, which stands for all devices. The
-- running maximum of the ends so far tells how much of an operation lies beyond what went before:
-- the sum of those parts is the length of a union, with one sort and no list of gaps.
CREATE MACRO gpu_unions(launched_only) AS TABLE
WITH work AS (
    SELECT w.*, l.gpu_op_id IS NOT NULL AS is_launched
    FROM gpu_work AS w
    LEFT JOIN launch AS l ON l.source_id = w.source_id AND l.gpu_op_id = w.id
    WHERE NOT launched_only OR l.gpu_op_id IS NOT NULL
), grouped AS (
    SELECT * REPLACE (NULL::INTEGER AS device), true AS is_total FROM work
    UNION ALL
    SELECT *, false FROM work WHERE device IS NOT NULL
), reached AS (
    SELECT *,
        max(end_ns) OVER so_far AS any_end,
        max(CASE WHEN kind = 'kernel' THEN end_ns END) OVER so_far AS kernel_end,
        CASE class
            WHEN 'compute' THEN max(CASE WHEN class = 'compute' THEN end_ns END) OVER so_far
            WHEN 'comm' THEN max(CASE WHEN class = 'comm' THEN end_ns END) OVER so_far
            ELSE max(CASE WHEN class = 'mem' THEN end_ns END) OVER so_far END AS class_end
    FROM grouped
    WINDOW so_far AS (
        PARTITION BY source_id, is_total, device ORDER BY start_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), fresh AS (
    SELECT *,
        greatest(0, end_ns - greatest(start_ns, coalesce(any_end, start_ns))) AS any_ns,
        greatest(0, end_ns - greatest(start_ns, coalesce(kernel_end, start_ns))) AS kernel_ns,
        greatest(0, end_ns - greatest(start_ns, coalesce(class_end, start_ns))) AS class_ns
    FROM reached
)
SELECT source_id, is_total, device,
    count(*) FILTER (kind = 'kernel') AS n_kernel,
    count(*) FILTER (kind = 'memcpy') AS n_memcpy,
    count(*) FILTER (kind = 'memset') AS n_memset,
    min(start_ns) AS first_ns,
    max(end_ns) AS last_ns,
    sum(any_ns) AS busy_ns,
    sum(kernel_ns) FILTER (kind = 'kernel') AS kernel_busy_ns,
    sum(class_ns) FILTER (class = 'compute') AS compute_ns,
    sum(class_ns) FILTER (class = 'comm') AS comm_ns,
    sum(class_ns) FILTER (class = 'mem') AS mem_ns,
    sum(end_ns - start_ns) FILTER (kind = 'kernel') AS kernel_sum_ns,
    count(*) FILTER (is_launched) AS n_launched
FROM fresh
GROUP BY source_id, is_total, device;

-- What each device did, and all devices together (device NULL): lengths of unions of intervals, ns
-- exact. A GPU recording without GPU work has one row of zeros with NULL times.
CREATE VIEW gpu_breakdown AS
SELECT
    -- Source that recorded it.
    s.id AS source_id,
    -- Device number; NULL in the row for all devices together.
    u.device AS device,
    -- Kernels.
    coalesce(u.n_kernel, 0) AS n_kernel,
    -- Copies.
    coalesce(u.n_memcpy, 0) AS n_memcpy,
    -- Memory sets.
    coalesce(u.n_memset, 0) AS n_memset,
    -- Start of the first operation, ns since the Unix epoch; NULL when there is none.
    u.first_ns AS first_ns,
    -- End of the last operation, ns since the Unix epoch; NULL when there is none.
    u.last_ns AS last_ns,
    -- From first_ns to last_ns, ns.
    coalesce(u.last_ns - u.first_ns, 0) AS span_ns,
    -- Time in which at least one operation ran, ns.
    CAST(coalesce(u.busy_ns, 0) AS BIGINT) AS busy_ns,
    -- Rest of the span, ns.
    CAST(coalesce(u.last_ns - u.first_ns - u.busy_ns, 0) AS BIGINT) AS idle_ns,
    -- Time in which at least one kernel ran that is no communication, ns.
    CAST(coalesce(u.compute_ns, 0) AS BIGINT) AS compute_ns,
    -- Time in which at least one communication kernel ran, ns.
    CAST(coalesce(u.comm_ns, 0) AS BIGINT) AS comm_ns,
    -- Time in which at least one copy or memory set ran, ns.
    CAST(coalesce(u.mem_ns, 0) AS BIGINT) AS mem_ns,
    -- Time in which computation and communication ran at once, ns.
    CAST(coalesce(u.compute_ns, 0) + coalesce(u.comm_ns, 0) - coalesce(u.kernel_busy_ns, 0)
        AS BIGINT) AS overlap_ns,
    -- Sum of the durations of all kernels, ns.
    CAST(coalesce(u.kernel_sum_ns, 0) AS BIGINT) AS kernel_sum_ns,
    -- Operations whose launching call is in the source.
    coalesce(u.n_launched, 0) AS n_launched,
    -- Operations launched before the recording began, or whose call was not recorded.
    coalesce(u.n_kernel + u.n_memcpy + u.n_memset - u.n_launched, 0) AS n_unlaunched
FROM source AS s
LEFT JOIN gpu_unions(false) AS u ON u.source_id = s.id
WHERE s.kind IN ('torch_profiler', 'nsys');

-- The same over operations that have a launch in the recording, which is what tools report that
-- cannot see the others.
CREATE VIEW gpu_breakdown_launched AS
SELECT
    -- Source that recorded it.
    s.id AS source_id,
    -- Device number; NULL in the row for all devices together.
    u.device AS device,
    -- Kernels.
    coalesce(u.n_kernel, 0) AS n_kernel,
    -- Copies.
    coalesce(u.n_memcpy, 0) AS n_memcpy,
    -- Memory sets.
    coalesce(u.n_memset, 0) AS n_memset,
    -- Start of the first operation, ns since the Unix epoch; NULL when there is none.
    u.first_ns AS first_ns,
    -- End of the last operation, ns since the Unix epoch; NULL when there is none.
    u.last_ns AS last_ns,
    -- From first_ns to last_ns, ns.
    coalesce(u.last_ns - u.first_ns, 0) AS span_ns,
    -- Time in which at least one operation ran, ns.
    CAST(coalesce(u.busy_ns, 0) AS BIGINT) AS busy_ns,
    -- Rest of the span, ns.
    CAST(coalesce(u.last_ns - u.first_ns - u.busy_ns, 0) AS BIGINT) AS idle_ns,
    -- Time in which at least one kernel ran that is no communication, ns.
    CAST(coalesce(u.compute_ns, 0) AS BIGINT) AS compute_ns,
    -- Time in which at least one communication kernel ran, ns.
    CAST(coalesce(u.comm_ns, 0) AS BIGINT) AS comm_ns,
    -- Time in which at least one copy or memory set ran, ns.
    CAST(coalesce(u.mem_ns, 0) AS BIGINT) AS mem_ns,
    -- Time in which computation and communication ran at once, ns.
    CAST(coalesce(u.compute_ns, 0) + coalesce(u.comm_ns, 0) - coalesce(u.kernel_busy_ns, 0)
        AS BIGINT) AS overlap_ns,
    -- Sum of the durations of all kernels, ns.
    CAST(coalesce(u.kernel_sum_ns, 0) AS BIGINT) AS kernel_sum_ns,
    -- Operations whose launching call is in the source.
    coalesce(u.n_launched, 0) AS n_launched,
    -- Operations launched before the recording began, or whose call was not recorded.
    coalesce(u.n_kernel + u.n_memcpy + u.n_memset - u.n_launched, 0) AS n_unlaunched
FROM source AS s
LEFT JOIN gpu_unions(true) AS u ON u.source_id = s.id
WHERE s.kind IN ('torch_profiler', 'nsys');
