-- Every request with what the report draws of it.
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- Arrival and end, ns since the Unix epoch, the source's clock corrected.
    start_ns, end_ns,
    -- Times in ns; NULL when not recorded.
    e2e_ns, ttft_ns, itl_ns, queue_ns,
    -- 'ok', 'error' or 'unset'.
    status,
    -- To find it again.
    trace_id,
    -- Who and where; NULL when not recorded.
    tenant, replica
FROM request
WHERE e2e_ns IS NOT NULL
ORDER BY part, start_ns, trace_id;
