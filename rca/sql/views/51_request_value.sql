-- What requests say of themselves, one row a request and role; same form as role_value.
CREATE VIEW request_value AS
WITH measured AS (
    UNPIVOT (
        SELECT part, service, start_ns,
            e2e_ns / 1e9 AS e2e_latency,
            ttft_ns / 1e9 AS ttft,
            itl_ns / 1e9 AS itl,
            queue_ns / 1e9 AS queue_time,
            prefill_ns / 1e9 AS prefill_time,
            decode_ns / 1e9 AS decode_time,
            prefill_ns / 1e9 / nullif(input_tokens, 0) AS prefill_per_token,
            CAST(input_tokens AS DOUBLE) AS prompt_tokens,
            CAST(output_tokens AS DOUBLE) AS output_tokens,
            greatest(e2e_ns - engine_ns, 0) / 1e9 AS outside_engine,
            CAST(CAST(status = 'error' AS INTEGER) AS DOUBLE) AS error_share
        FROM request
    )
    ON e2e_latency, ttft, itl, queue_time, prefill_time, decode_time, prefill_per_token,
        prompt_tokens, output_tokens, outside_engine, error_share
    INTO NAME role VALUE num
)
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- Role, for example 'ttft'.
    role,
    -- Service of the root span, '' when unknown.
    service,
    -- Arrival, ns since the Unix epoch.
    start_ns AS ts_ns,
    -- Value.
    num,
    -- Always 1.
    1.0 AS den
FROM measured;

-- What spans say of services, one row a span and role; same form as role_value.
-- span_time: duration. span_self: time not spent in children. call_gap: time between a caller's span
-- and the callee's, put down to the callee, where a slow network shows.
CREATE VIEW span_value AS
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- 'span_time', 'span_self', 'call_gap' or 'span_errors'.
    'span_time' AS role,
    -- Service; for call_gap the one that is called.
    service,
    -- Operation name.
    name AS subject,
    -- Start, ns since the Unix epoch.
    start_ns AS ts_ns,
    -- Value: seconds, or 0 and 1 for errors.
    dur_ns / 1e9 AS num,
    -- Always 1.
    1.0 AS den
FROM span_self
UNION ALL
SELECT part, 'span_self', service, name, start_ns, self_ns / 1e9, 1.0
FROM span_self
WHERE callee IS NULL
UNION ALL
SELECT part, 'call_gap', callee, name, start_ns, self_ns / 1e9, 1.0
FROM span_self
WHERE callee IS NOT NULL
UNION ALL
SELECT part, 'span_errors', service, name, start_ns, CAST(status = 'error' AS INTEGER), 1.0
FROM span_self;
