-- What the hardware counters of a GPU said over a capture (nsys profile --gpu-metrics-devices), by
-- metric. Samples lie evenly in time: their mean is the mean over time.
CREATE VIEW gpu_metric AS
SELECT
    -- Source it comes from.
    s.source_id AS source_id,
    -- Number of the GPU in the machine. A process that sees only some of them counts its own.
    CAST(s.labels['gpu'] AS INTEGER) AS device,
    -- Name as the profiler writes it, as in 'DRAM Read Bandwidth [Throughput %]'.
    s.labels['metric'] AS metric,
    -- Unit, '%' where it is a share of the peak; NULL when the name has none.
    s.unit AS unit,
    -- Number of samples.
    count(*) AS count,
    -- First sample, ns since the Unix epoch.
    min(p.ts_ns) AS first_ns,
    -- Last sample, ns since the Unix epoch.
    max(p.ts_ns) AS last_ns,
    -- Mean of the samples.
    avg(p.value) AS avg,
    -- Median of the samples.
    median(p.value) AS med,
    -- Value that 99 % of the samples do not exceed.
    quantile_cont(p.value, 0.99) AS p99,
    -- Largest sample.
    max(p.value) AS max
FROM series AS s
JOIN sample AS p ON p.series_id = s.id
WHERE s.name LIKE 'nsys\_gpu\_%' ESCAPE '\'
GROUP BY s.source_id, s.labels['gpu'], s.labels['metric'], s.unit;

-- How much of a GPU's memory bandwidth and of its tensor cores was used over a capture, as shares of
-- the device's peak.
CREATE VIEW gpu_bandwidth AS
WITH used AS (
    SELECT source_id, device, min(first_ns) AS first_ns, max(last_ns) AS last_ns,
        avg(avg) FILTER (regexp_matches(metric, '^DRAM Read', 'i')) / 100 AS dram_read,
        avg(avg) FILTER (regexp_matches(metric, '^DRAM Write', 'i')) / 100 AS dram_write,
        avg(avg) FILTER (regexp_matches(metric, '^Tensor Active', 'i')) / 100 AS tensor,
        avg(avg) FILTER (regexp_matches(metric, '^SMs? Active', 'i')) / 100 AS sm
    FROM gpu_metric
    WHERE unit = '%'
    GROUP BY source_id, device
)
SELECT
    -- Source it comes from.
    u.source_id AS source_id,
    -- Number of the GPU in the machine.
    u.device AS device,
    -- First sample, ns since the Unix epoch.
    u.first_ns AS first_ns,
    -- Last sample, ns since the Unix epoch.
    u.last_ns AS last_ns,
    -- Mean share of the peak memory bandwidth used for reads, 0 to 1; NULL when not sampled.
    u.dram_read AS dram_read_share,
    -- The same for writes.
    u.dram_write AS dram_write_share,
    -- Both together; NULL when one of them was not sampled.
    u.dram_read + u.dram_write AS dram_share,
    -- Peak memory bandwidth in bytes per second; NULL when the source does not say.
    d.memory_bandwidth AS peak_bytes_per_s,
    -- Achieved memory bandwidth in bytes per second; NULL when the share or the peak is unknown.
    (u.dram_read + u.dram_write) * d.memory_bandwidth AS dram_bytes_per_s,
    -- Mean share of the peak at which tensor cores worked, 0 to 1; NULL when not sampled.
    u.tensor AS tensor_share,
    -- Mean share of multiprocessors with work, 0 to 1; NULL when not sampled.
    u.sm AS sm_share
FROM used AS u
LEFT JOIN device AS d
    ON d.source_id = u.source_id
    AND d.id = u.device;
