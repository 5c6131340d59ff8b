-- What GPU captures say, one row a capture and role; same form as role_value.
CREATE VIEW gpu_value AS
WITH value AS (
    SELECT source_id, first_ns AS ts_ns, 'gpu_idle' AS role, CAST(idle_ns AS DOUBLE) AS num,
        CAST(span_ns AS DOUBLE) AS den
    FROM gpu_breakdown WHERE device IS NULL AND span_ns > 0
    UNION ALL
    SELECT source_id, first_ns, 'gpu_comm', CAST(comm_ns AS DOUBLE), CAST(span_ns AS DOUBLE)
    FROM gpu_breakdown WHERE device IS NULL AND span_ns > 0
    UNION ALL
    SELECT source_id, first_ns, 'gpu_copies', CAST(mem_ns AS DOUBLE), CAST(span_ns AS DOUBLE)
    FROM gpu_breakdown WHERE device IS NULL AND span_ns > 0
    UNION ALL
    SELECT source_id, first_ns, 'kernel_time', kernel_sum_ns / 1e9, CAST(n_kernel AS DOUBLE)
    FROM gpu_breakdown WHERE device IS NULL AND n_kernel > 0
)
SELECT
    -- 'incident' or 'baseline'.
    src.part,
    -- 'gpu_idle', 'gpu_comm', 'gpu_copies' (shares of the span) or 'kernel_time' (s).
    v.role,
    -- Always '': a capture is of one process.
    '' AS service,
    -- First GPU operation of the capture, ns since the Unix epoch.
    v.ts_ns + src.shift_ns AS ts_ns,
    -- Nanoseconds, or seconds of kernels.
    v.num,
    -- Nanoseconds of the span, or number of kernels.
    v.den
FROM value AS v
JOIN source AS src ON src.id = v.source_id;
