-- Metric series: a name and its labels in one source.
CREATE TABLE series (
    -- Number of the series in this case.
    id BIGINT NOT NULL,
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Metric name as exported, for example 'vllm:num_requests_waiting'.
    name VARCHAR NOT NULL,
    -- All labels but the name.
    labels MAP(VARCHAR, VARCHAR) NOT NULL,
    -- 'counter', 'gauge', 'histogram', 'summary' or 'unknown'; told by the source or by the name's ending.
    type VARCHAR NOT NULL,
    -- Unit as the source says; NULL when it does not.
    unit VARCHAR
);

-- Values of metric series.
CREATE TABLE sample (
    -- The series.
    series_id BIGINT NOT NULL,
    -- Time, ns since the Unix epoch.
    ts_ns BIGINT NOT NULL,
    -- Value; NaN and infinities as they came. A stale marker is not a sample.
    value DOUBLE NOT NULL
);

-- Values of native histograms.
CREATE TABLE histogram_sample (
    -- The series.
    series_id BIGINT NOT NULL,
    -- Time, ns since the Unix epoch.
    ts_ns BIGINT NOT NULL,
    -- Number of observations.
    count DOUBLE NOT NULL,
    -- Sum of the observations.
    sum DOUBLE NOT NULL,
    -- Buckets, not cumulative: bounds and count.
    buckets STRUCT(low DOUBLE, high DOUBLE, count DOUBLE)[] NOT NULL
);
