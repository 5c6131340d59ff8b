-- KV cache that a running request holds, in tokens: the share in use times the size of the pool. Longer prompts and
-- prefixes that are no longer shared raise it, and blocks that nobody gave back; a smaller pool does not. Same form
-- as role_value. vLLM tells the size in labels, SGLang in a gauge.
CREATE VIEW kv_tokens_value AS
WITH pool AS (
    SELECT s.source_id, coalesce(s.labels['instance'], '') AS instance, v.ts_ns,
        max(CASE WHEN s.name LIKE '%_info'
            THEN TRY_CAST(s.labels['num_gpu_blocks'] AS DOUBLE) * TRY_CAST(s.labels['block_size'] AS DOUBLE)
            ELSE v.value
        END) AS tokens
    FROM series AS s
    JOIN sample AS v ON v.series_id = s.id
    WHERE regexp_matches(s.name, '^(ray_)?(vllm[:_]cache_config_info|sglang[:_]max_total_num_tokens)$')
        AND v.value > 0 AND isfinite(v.value)
    GROUP BY ALL
),
used AS (
    SELECT v.part, v.service, v.ts_ns + v.shift_ns AS ts_ns, sum(v.share * p.tokens) AS tokens
    FROM (
        SELECT s.source_id, coalesce(s.labels['instance'], '') AS instance, src.part, src.shift_ns, r.service,
            v.ts_ns, v.value * r.scale AS share
        FROM series_role AS r
        JOIN series AS s ON s.id = r.series_id
        JOIN source AS src ON src.id = s.source_id
        JOIN sample AS v ON v.series_id = s.id
        WHERE r.role = 'kv_usage' AND isfinite(v.value)
    ) AS v
    ASOF JOIN pool AS p
        ON p.source_id = v.source_id AND p.instance = v.instance AND v.ts_ns >= p.ts_ns
    WHERE p.tokens IS NOT NULL
    GROUP BY ALL
)
SELECT
    -- 'incident' or 'baseline'.
    u.part,
    -- Always 'kv_tokens_per_request'.
    'kv_tokens_per_request' AS role,
    -- Service of the engine.
    u.service,
    -- Time of the scrape, ns since the Unix epoch.
    u.ts_ns,
    -- Tokens that the blocks in use have room for.
    u.tokens AS num,
    -- Running requests.
    r.value AS den
FROM used AS u
JOIN role_value AS r ON r.part = u.part AND r.service = u.service AND r.ts_ns = u.ts_ns AND r.role = 'running'
WHERE r.value > 0;
