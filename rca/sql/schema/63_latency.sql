-- Each request's time, taken apart along its critical path: parts do not overlap and add up to the
-- request's end-to-end time exactly. Of large windows some thousand requests, picked by a hash.
CREATE TABLE request_part (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Trace id.
    trace_id VARCHAR NOT NULL,
    -- 'queue', 'prefill', 'decode', 'engine, rest', 'tokenise', 'detokenise', 'serialise', 'connection wait', 'network' (between caller and callee), 'call' (of what has no span of its own), 'own time', or 'residual' (measured parts of the engine exceed its span).
    part VARCHAR NOT NULL,
    -- Service whose time it is; for network and call the one that is called; '' when unknown.
    service VARCHAR NOT NULL,
    -- Time, ns; negative for a residual only.
    ns BIGINT NOT NULL
);

-- The same for all requests together: means, and the mean of the slowest twentieth (ES95), which
-- adds up like a mean and stands where a quantile would, which does not.
CREATE TABLE cohort_part (
    -- Part, as in request_part.
    part VARCHAR NOT NULL,
    -- Service, as in request_part.
    service VARCHAR NOT NULL,
    -- Requests taken apart in the reference.
    n_reference BIGINT NOT NULL,
    -- Requests taken apart in the window.
    n_window BIGINT NOT NULL,
    -- Mean in the reference, ns; NULL without a reference.
    mean_reference_ns DOUBLE,
    -- Mean in the window, ns.
    mean_window_ns DOUBLE NOT NULL,
    -- Difference of the means, ns; all rows together are the added latency.
    added_ns DOUBLE,
    -- Share of the added latency; NULL when none was added.
    share DOUBLE,
    -- Mean among the requests at or above the reference's own 95th percentile, ns; NULL below 40 requests.
    es95_reference_ns DOUBLE,
    -- Mean among the requests at or above the window's own 95th percentile, ns; NULL below 40 requests.
    es95_window_ns DOUBLE,
    -- Difference of both, ns; all rows together are the added ES95.
    es95_added_ns DOUBLE
);

-- Mean queue when requests are replayed first come, first served, with demand, service times and
-- slots of the window or of the reference: eight rows, or none where it cannot be replayed.
CREATE TABLE queue_replay (
    -- Whether arrivals are those of the window.
    demand BOOLEAN NOT NULL,
    -- Whether service times are those of the window.
    service BOOLEAN NOT NULL,
    -- Whether slots are those of the window.
    slots BOOLEAN NOT NULL,
    -- Mean time in the queue of the window's requests in the replay, ns.
    queue_ns DOUBLE NOT NULL
);

-- What the added latency comes from, once the queue is put down to what made it: rows add up to it.
-- Lengths (more tokens) stand apart from rates (more time a token).
CREATE TABLE latency_driver (
    -- 'more requests', 'fewer slots', 'longer prompts', 'slower prefill', 'longer answers', 'slower decode', 'queue, not explained', or a part of cohort_part with its service.
    driver VARCHAR NOT NULL,
    -- Time that it adds itself, ns.
    direct_ns DOUBLE NOT NULL,
    -- Time that it adds through the queue, ns (Shapley value over the replays).
    queue_ns DOUBLE NOT NULL,
    -- Both, ns.
    added_ns DOUBLE NOT NULL,
    -- Share of the added latency; NULL when none was added.
    share DOUBLE
);
