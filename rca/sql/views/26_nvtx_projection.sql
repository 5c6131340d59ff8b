-- NVTX ranges as they look on the GPU: from the start of the first to the end of the last operation
-- that was launched within the range on its thread. Ranges without GPU work have no row.
CREATE VIEW nvtx_projection AS
SELECT
    -- Source it comes from.
    n.source_id AS source_id,
    -- `id` of the range in cpu_op.
    n.id AS cpu_op_id,
    -- Name of the range.
    any_value(n.name) AS name,
    -- Its domain; NULL for the default one.
    any_value(n.domain) AS domain,
    -- Start of the first operation, ns since the Unix epoch.
    min(w.start_ns) AS start_ns,
    -- From there to the end of the last operation, ns.
    max(w.end_ns) - min(w.start_ns) AS dur_ns,
    -- Number of GPU operations.
    count(*) AS n_gpu_ops
FROM cpu_op AS n
JOIN cpu_op AS c
    ON c.source_id = n.source_id
    AND c.pid = n.pid
    AND c.tid = n.tid
    AND c.start_ns >= n.start_ns
    AND c.start_ns + c.dur_ns < n.start_ns + n.dur_ns
JOIN launch AS l
    ON l.source_id = c.source_id
    AND l.cpu_op_id = c.id
JOIN gpu_work AS w
    ON w.source_id = l.source_id
    AND w.id = l.gpu_op_id
WHERE n.kind = 'nvtx'
    AND c.kind IN ('runtime', 'driver')
GROUP BY n.source_id, n.id;
