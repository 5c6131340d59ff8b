-- Memory of processes, containers and devices: how full, how fast it grows, how well a line fits.
CREATE TABLE memory_use (
    -- 'host' (a process or container), 'gpu' (a device) or 'allocator' (of a profiled process).
    kind VARCHAR NOT NULL,
    -- Service, '' when unknown.
    service VARCHAR NOT NULL,
    -- Replica or capture, '' when unknown.
    replica VARCHAR NOT NULL,
    -- Device; NULL for all devices of the replica together, and where none is told.
    device VARCHAR,
    -- Number of devices that the row speaks of; NULL where none is told.
    devices BIGINT,
    -- 'incident' or 'baseline'.
    part VARCHAR NOT NULL,
    -- Values it rests on.
    n BIGINT NOT NULL,
    -- First value, bytes; of an allocator what was allocated.
    first_bytes DOUBLE NOT NULL,
    -- Last value, bytes.
    last_bytes DOUBLE NOT NULL,
    -- Largest value, bytes.
    most_bytes DOUBLE NOT NULL,
    -- What there is in all: the limit or the size, of an allocator what it holds reserved at that time; NULL when not recorded.
    total_bytes DOUBLE,
    -- most_bytes / total_bytes; NULL when the total is not recorded.
    used_share DOUBLE,
    -- From when on it grows, ns since the Unix epoch: the begin of the line that fits best, level before it; NULL without growth.
    since_ns BIGINT,
    -- Slope of that line, bytes a second; 0 when nothing moved, NULL below eight values.
    growth_bytes_per_s DOUBLE,
    -- Share of the variance that it explains (R²), 0 to 1: near 1 for a leak; NULL below eight values or when nothing moved.
    r_squared DOUBLE
);

-- Bursts of cache invalidations, by reason: stretches of seconds with many more than usual.
CREATE TABLE invalidation_storm (
    -- Reason (cache.reason); '' when the spans do not say.
    reason VARCHAR NOT NULL,
    -- First second, ns since the Unix epoch.
    start_ns BIGINT NOT NULL,
    -- End of the last second, ns since the Unix epoch.
    end_ns BIGINT NOT NULL,
    -- Invalidations in it.
    n BIGINT NOT NULL,
    -- Different keys among them.
    n_keys BIGINT NOT NULL,
    -- Invalidations a second.
    per_s DOUBLE NOT NULL,
    -- Invalidations a second outside of storms.
    usual_per_s DOUBLE NOT NULL,
    -- Key invalidated most often.
    top_key VARCHAR NOT NULL
);

-- Versions of a model and of what must go with it, as requests met them: one row a combination.
CREATE TABLE version_window (
    -- Version of the model.
    model VARCHAR NOT NULL,
    -- 'tokenizer' or 'cache': what must go with it.
    kind VARCHAR NOT NULL,
    -- Its version; NULL when not recorded.
    partner VARCHAR,
    -- Whether the two do not belong together.
    is_skewed BOOLEAN NOT NULL,
    -- Requests that met them.
    requests BIGINT NOT NULL,
    -- First of these, ns since the Unix epoch.
    first_ns BIGINT NOT NULL,
    -- Last of these, ns since the Unix epoch: with first_ns the window of a reload, when both versions are new.
    last_ns BIGINT NOT NULL,
    -- Share of these that were slow; NULL without a limit.
    share_slow DOUBLE,
    -- Share of the requests with belonging versions that were slow; NULL without any, or without a limit.
    share_slow_others DOUBLE
);

-- Calls by their depth below the request: how many one request makes, how long they take, how many fail.
CREATE TABLE call_depth (
    -- 0 for the request itself, 1 for what it calls, and so on; calls inside of one service are no level.
    depth INTEGER NOT NULL,
    -- Spans of the window for each request.
    per_request DOUBLE NOT NULL,
    -- The same in the reference; NULL without one.
    per_request_reference DOUBLE,
    -- Mean duration in the window, ns.
    mean_ns DOUBLE NOT NULL,
    -- Mean duration in the reference, ns; NULL without one.
    mean_reference_ns DOUBLE,
    -- Share that failed in the window, 0 to 1.
    failed_share DOUBLE NOT NULL,
    -- Calls against the reference, divided by the same of the level above: above 1 the fault multiplies here; NULL without a reference.
    hop_ratio DOUBLE
);
