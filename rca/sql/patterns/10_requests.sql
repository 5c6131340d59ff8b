-- Requests as times divided by the work they were for, so that a group is a way of being slow and not a size.
SELECT request_id, part, start_ns,
    queue_ns / 1e9 AS queue,
    prefill_ns / nullif(input_tokens, 0) AS prefill_per_token,
    itl_ns AS time_per_token,
    greatest(e2e_ns - engine_ns, 1) / 1e9 AS outside_engine,
    input_tokens AS prompt_tokens,
    output_tokens AS output_tokens
FROM request
WHERE engine_ns IS NOT NULL
ORDER BY part, start_ns, request_id;
