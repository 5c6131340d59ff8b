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
    AND flaw IS NULL
GROUP BY source_id, 2;

-- Copies and memory sets, by kind and source: their time and their size.
CREATE VIEW memory_summary AS
SELECT
    -- Source it comes from.
    source_id,
    -- Kind of the operation, as in '[CUDA memcpy HtoD]'.
    name,
    -- How many there were.
    count(*) AS count,
    -- Sum of their durations, ns.
    CAST(sum(dur_ns) AS BIGINT) AS total_ns,
    -- Mean duration, ns.
    avg(dur_ns) AS avg_ns,
    -- Median duration, ns.
    median(dur_ns) AS med_ns,
    -- Shortest duration, ns.
    min(dur_ns) AS min_ns,
    -- Longest duration, ns.
    max(dur_ns) AS max_ns,
    -- Standard deviation of the sample, ns; 0 for a single operation.
    coalesce(stddev_samp(dur_ns), 0) AS stddev_ns,
    -- Sum of their bytes; NULL when the source does not say.
    CAST(sum(bytes) AS BIGINT) AS total_bytes,
    -- Mean size in bytes.
    avg(bytes) AS avg_bytes,
    -- Median size in bytes.
    median(bytes) AS med_bytes,
    -- Smallest size in bytes.
    min(bytes) AS min_bytes,
    -- Largest size in bytes.
    max(bytes) AS max_bytes,
    -- Standard deviation of the sample, bytes; 0 for a single operation.
    coalesce(stddev_samp(bytes), 0) AS stddev_bytes
FROM gpu_op
WHERE kind IN ('memcpy', 'memset')
    AND flaw IS NULL
GROUP BY source_id, name;

-- Time in each NVTX range, by name and source. Marks and ranges that the recording did not see the
-- end of take no time and are left out.
CREATE VIEW nvtx_summary AS
SELECT
    -- Source it comes from.
    source_id,
    -- Name of the range, behind the name of its domain as in 'NCCL:ncclAllReduce'.
    coalesce(domain || ':', '') || name AS name,
    -- How many ranges had this name.
    count(*) AS count,
    -- Sum of the durations, ns. Ranges lie within ranges: the sum over names counts time twice.
    CAST(sum(dur_ns) AS BIGINT) AS total_ns,
    -- Mean duration, ns.
    avg(dur_ns) AS avg_ns,
    -- Median duration, ns.
    median(dur_ns) AS med_ns,
    -- Shortest duration, ns.
    min(dur_ns) AS min_ns,
    -- Longest duration, ns.
    max(dur_ns) AS max_ns,
    -- Standard deviation of the sample, ns; 0 for a single range.
    coalesce(stddev_samp(dur_ns), 0) AS stddev_ns
FROM cpu_op
WHERE kind = 'nvtx'
    AND flaw IS NULL
    AND dur_ns > 0
GROUP BY source_id, 2;
