-- Requests with what may set them apart from others, in the order of time.
SELECT part, start_ns AS ts_ns, e2e_ns / 1e9 AS cohort_latency, ttft_ns / 1e9 AS cohort_ttft,
    tenant, model, replica, CASE WHEN input_tokens > 0 THEN length_band(input_tokens) || ' tokens' END AS prompt
FROM request
WHERE start_ns IS NOT NULL
ORDER BY start_ns, source_id, trace_id;
