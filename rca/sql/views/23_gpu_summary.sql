-- Time in each kernel, by name and source.
CREATE VIEW kernel_summary AS
SELECT
    -- Source it comes from.
    source_id,
    -- Name of the kernel.
    name,
    -- How often it ran.
    count(*) AS count,
    -- Sum of its durations, ns.
    CAST(sum(dur_ns) AS BIGINT) AS total_ns,
    -- Mean duration, ns.
    avg(dur_ns) AS avg_ns,
    -- Median duration, ns.
    median(dur_ns) AS med_ns,
    -- Shortest duration, ns.
    min(dur_ns) AS min_ns,
    -- Longest duration, ns.
    max(dur_ns) AS max_ns,
    -- Standard deviation of the sample, ns; 0 for a single run.
    coalesce(stddev_samp(dur_ns), 0) AS stddev_ns
FROM gpu_op
WHERE kind = 'kernel'
    AND flaw IS NULL
GROUP BY source_id, name;

-- Time in each call of the CUDA or HIP API, by name and source.
CREATE VIEW api_summary AS
SELECT
    -- Source it comes from.
    source_id,
    -- Name of the call without the version that Nsight adds, as in cudaLaunchKernel_v7000.
    regexp_replace(name, '_v[0-9]{4,5}$', '') AS name,
    -- How often it was called.
    count(*) AS count,
    -- Sum of the durations, ns.
    CAST(sum(dur_ns) AS BIGINT) AS total_ns,
    -- Mean duration, ns.
    avg(dur_ns) AS avg_ns,
    -- Median duration, ns.
    median(dur_ns) AS med_ns,
    -- Shortest duration, ns.
    min(dur_ns) AS min_ns,
    -- Longest duration, ns.
    max(dur_ns) AS max_ns,
    -- Standard deviation of the sample, ns; 0 for a single call.
    coalesce(stddev_samp(dur_ns), 0) AS stddev_ns
FROM cpu_op
WHERE kind IN ('runtime', 'driver')
GROUP BY source_id, 2;
