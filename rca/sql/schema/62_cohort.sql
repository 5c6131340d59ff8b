-- What is set against what in all tables below: at most one row. Without an incident window the
-- whole of the incident's recordings stands for it.
CREATE TABLE cohort (
    -- Start of the window, ns since the Unix epoch.
    start_ns BIGINT NOT NULL,
    -- End of the window, ns since the Unix epoch.
    end_ns BIGINT NOT NULL,
    -- Whether it is an incident's window; false when all of the recording stands for it.
    is_incident BOOLEAN NOT NULL,
    -- 'baseline' or 'lead-in': where the reference comes from; NULL when there is none.
    reference VARCHAR,
    -- Requests in the window.
    n_window BIGINT NOT NULL,
    -- Requests in the reference.
    n_reference BIGINT NOT NULL,
    -- Requests that take longer are slow, ns; NULL without an objective and a reference.
    limit_ns BIGINT,
    -- 'objective' (as given), else 'healthy p99'; NULL without a limit.
    limit_by VARCHAR,
    -- Slow requests are set against the rest by this, ns: the limit, or the window's 95th percentile where the limit leaves fewer than ten requests or a twentieth on a side; NULL when that does too.
    split_ns BIGINT,
    -- 'objective', 'healthy p99' or 'p95 of the window'; NULL without a split.
    split_by VARCHAR,
    -- Smallest share of the requests that metrics counted which the traces have, else the share that the samplers' tags tell; NULL when neither is there.
    traced_share DOUBLE,
    -- Whether traces are a sample (less than nine of ten): shares among them are biased, their counts and high quantiles mean nothing.
    is_sampled BOOLEAN NOT NULL,
    -- What says so, in words; NULL when they are no sample.
    sampled_by VARCHAR
);

-- Requests of the window and of the reference, one row each.
CREATE TABLE cohort_request (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Trace id.
    trace_id VARCHAR NOT NULL,
    -- The engine's id of the request, else the trace id.
    request_id VARCHAR NOT NULL,
    -- 'window' or 'reference'.
    side VARCHAR NOT NULL,
    -- Arrival, ns since the Unix epoch, the source's clock corrected.
    start_ns BIGINT NOT NULL,
    -- End to end, ns.
    e2e_ns BIGINT NOT NULL,
    -- Whether it took longer than the limit; NULL without a limit.
    is_slow BOOLEAN,
    -- 'ok', 'error' or 'unset'.
    status VARCHAR NOT NULL,
    -- Time in the engine's queue, ns; NULL when not recorded.
    queue_ns BIGINT,
    -- Time to the first token, ns; NULL when not recorded.
    ttft_ns BIGINT,
    -- Mean time between tokens, ns; NULL when not recorded.
    itl_ns BIGINT,
    -- Time in prefill, ns; NULL when not recorded.
    prefill_ns BIGINT,
    -- Time in decode, ns; NULL when not recorded.
    decode_ns BIGINT,
    -- Duration of the engine's span, ns; NULL when the trace has none.
    engine_ns BIGINT,
    -- Prompt tokens; NULL when not recorded.
    input_tokens BIGINT,
    -- Tokens generated; NULL when not recorded.
    output_tokens BIGINT,
    -- Model; NULL when not recorded.
    model VARCHAR,
    -- Tenant; NULL when not recorded.
    tenant VARCHAR,
    -- Pod or instance of the engine; NULL when not recorded.
    replica VARCHAR,
    -- Service of the root span, '' when unknown.
    service VARCHAR NOT NULL,
    -- Requests running when it arrived: as metrics showed last before, within a minute, else as many as were traced.
    batch DOUBLE,
    -- Arrivals a second over the ten seconds around its own.
    rate_per_s DOUBLE
);

-- Slow requests against the rest (cohort.split_ns): every attribute of their spans, called service, operation and
-- band of lengths, by its share among both. Attributes that name single requests, and numbers that
-- are no labels, are left out; what marks the same requests is told once.
CREATE TABLE slow_attribute (
    -- Rank, by how far the shares lie apart.
    rank INTEGER NOT NULL,
    -- Attribute, 'calls', 'operation', 'failed operation', 'prompt tokens' or 'output tokens'.
    attribute VARCHAR NOT NULL,
    -- Its value.
    value VARCHAR NOT NULL,
    -- Slow requests of the window.
    n_slow BIGINT NOT NULL,
    -- Slow requests with it.
    n_slow_with BIGINT NOT NULL,
    -- Other requests of the window.
    n_other BIGINT NOT NULL,
    -- Other requests with it.
    n_other_with BIGINT NOT NULL,
    -- Share of the slow requests with it, 0 to 1.
    share_slow DOUBLE NOT NULL,
    -- Share of the others with it, 0 to 1.
    share_other DOUBLE NOT NULL,
    -- Share of the reference's requests with it, 0 to 1; NULL without a reference.
    share_reference DOUBLE,
    -- share_slow / share_other, half a request added to each count where one is zero.
    lift DOUBLE NOT NULL,
    -- Lower end of the 95 % interval of the lift (Katz's logarithm method).
    lift_low DOUBLE NOT NULL,
    -- Upper end of the 95 % interval of the lift.
    lift_high DOUBLE NOT NULL,
    -- Two-sided p-value of Fisher's exact test.
    p_value DOUBLE NOT NULL,
    -- Smallest false discovery rate at which it counts (Benjamini and Hochberg, over all that were tested).
    q_value DOUBLE NOT NULL,
    -- How many attributes were tested.
    n_tested BIGINT NOT NULL,
    -- Other attributes with a value that mark the same requests, a JSON array.
    same_as JSON NOT NULL,
    -- One sentence for people.
    statement VARCHAR NOT NULL
);

-- How far it reaches: requests, share slow and failed by tenant, model, replica and service.
CREATE TABLE blast_radius (
    -- 'tenant', 'model', 'replica' or 'service'.
    kind VARCHAR NOT NULL,
    -- Its name.
    name VARCHAR NOT NULL,
    -- Requests in the window.
    requests BIGINT NOT NULL,
    -- Of these slow.
    slow BIGINT NOT NULL,
    -- Of these failed.
    failed BIGINT NOT NULL,
    -- Share slow, 0 to 1.
    share_slow DOUBLE NOT NULL,
    -- Lower end of the 95 % interval (Wilson) of the share.
    share_low DOUBLE NOT NULL,
    -- Upper end of the 95 % interval (Wilson) of the share.
    share_high DOUBLE NOT NULL,
    -- Share slow of its requests in the reference, by the same limit; NULL when it has none there.
    share_reference DOUBLE,
    -- Share slow against the share over all requests; 1 when it suffers like all.
    ratio DOUBLE,
    -- Share of all slow requests that are its.
    share_of_slow DOUBLE NOT NULL
);

-- Latency by prompt length, window and reference side by side.
CREATE TABLE latency_by_context (
    -- 'window' or 'reference'.
    side VARCHAR NOT NULL,
    -- Prompt tokens from this on.
    from_tokens BIGINT NOT NULL,
    -- Prompt tokens below this.
    below_tokens BIGINT NOT NULL,
    -- Requests.
    n BIGINT NOT NULL,
    -- Median time to the first token, ns; NULL when not recorded.
    ttft_p50_ns DOUBLE,
    -- 95th percentile of the time to the first token, ns; NULL below 40 requests.
    ttft_p95_ns DOUBLE,
    -- Lower end of its 95 % interval by ranks, ns; NULL below 40 requests.
    ttft_p95_low_ns DOUBLE,
    -- Upper end of it, ns; NULL below about 80 requests, where the slowest may not reach it.
    ttft_p95_high_ns DOUBLE,
    -- Median of the mean time between tokens, ns; NULL when not recorded.
    itl_p50_ns DOUBLE,
    -- 99th percentile of the mean time between tokens, ns; NULL below 200 requests.
    itl_p99_ns DOUBLE,
    -- Lower end of its 95 % interval by ranks, ns; NULL below 200 requests.
    itl_p99_low_ns DOUBLE,
    -- Upper end of it, ns; NULL below about 500 requests, where the slowest may not reach it.
    itl_p99_high_ns DOUBLE,
    -- Standard deviation of the mean time between tokens, ns; NULL below two requests.
    itl_stddev_ns DOUBLE,
    -- Share of requests over the limit, 0 to 1; NULL without a limit.
    share_slow DOUBLE,
    -- Lower end of the 95 % interval (Wilson) of the share; NULL without a limit.
    share_low DOUBLE,
    -- Upper end of the 95 % interval (Wilson) of the share; NULL without a limit.
    share_high DOUBLE
);

-- Share of requests within the limit by batch size and arrival rate, as observed on both sides.
-- Requests of both sides count, since a cell is about the load and not about the day.
CREATE TABLE slo_heat_map (
    -- Requests running when one arrives: from this on.
    batch_from BIGINT NOT NULL,
    -- Requests running when one arrives: below this.
    batch_below BIGINT NOT NULL,
    -- Arrivals a second over the ten seconds around it: from this on.
    rate_from DOUBLE NOT NULL,
    -- Arrivals a second over the ten seconds around it: below this.
    rate_below DOUBLE NOT NULL,
    -- Requests.
    n BIGINT NOT NULL,
    -- Share within the limit, 0 to 1.
    share_within DOUBLE NOT NULL,
    -- Lower end of the 95 % interval (Wilson).
    within_low DOUBLE NOT NULL,
    -- Upper end of the 95 % interval (Wilson).
    within_high DOUBLE NOT NULL,
    -- Whether at least 100 requests are in the cell and the lower end is at least 0.95; NULL with fewer requests.
    is_safe BOOLEAN,
    -- Generated tokens a second and running request; NULL when not recorded.
    token_rate DOUBLE
);

-- Single figures that compare window and reference, each with the form in which it is commonly
-- given where that misleads.
CREATE TABLE indicator (
    -- Name, for example 'jitter'.
    name VARCHAR NOT NULL,
    -- What it speaks of: a service, a replica, a kind of key; '' for all requests.
    subject VARCHAR NOT NULL,
    -- Unit; 'ratio' where it has none.
    unit VARCHAR NOT NULL,
    -- Value in the reference; NULL when there is none.
    reference DOUBLE,
    -- Value in the window; NULL when it cannot be had, and `note` says why.
    observed DOUBLE,
    -- What the reference itself stays below or above; NULL when there is no such bound.
    bound DOUBLE,
    -- The window's value by the formula as it is commonly given; NULL where that is the same.
    common DOUBLE,
    -- The formula as it is commonly given, and why another is used; NULL where that is the same.
    common_formula VARCHAR,
    -- Observations in the reference.
    n_reference BIGINT NOT NULL,
    -- Observations in the window.
    n_observed BIGINT NOT NULL,
    -- Whether the window is beyond the bound; NULL when there is none.
    is_flagged BOOLEAN,
    -- One sentence for people.
    statement VARCHAR NOT NULL,
    -- What limits it; NULL when nothing does.
    note VARCHAR
);
