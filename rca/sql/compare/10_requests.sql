-- Requests of one side, one row each, in the order of their arrival.
SELECT
    source_id,
    trace_id,
    start_ns,
    end_ns,
    e2e_ns,
    ttft_ns,
    itl_ns,
    input_tokens,
    output_tokens,
    status = 'error' AS failed
FROM request
WHERE part = $1
    -- A damaged duration is no latency.
    AND e2e_ns > 0
ORDER BY start_ns, trace_id;
