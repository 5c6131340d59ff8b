-- Median time to the first token by prompt length.
SELECT side, from_tokens, below_tokens, n, ttft_p50_ns
FROM latency_by_context
ORDER BY side, from_tokens;
