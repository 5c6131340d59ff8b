-- What an engine's log says of its state where no metric does: running and waiting requests, the KV cache, the share
-- of prompts that it held already, tokens per second, preemptions. Same form as role_value, but one row a line: of
-- several engines the value is the mean of one, whatever the role says, since they do not write at the same moments.
CREATE VIEW engine_log_value AS
WITH line AS (
    SELECT src.part, l.source_id, l.ts_ns + src.shift_ns AS ts_ns, l.fields,
        -- What processes and ranks of an engine call themselves is no service.
        CASE WHEN regexp_matches(coalesce(l.service, ''), '^(APIServer|EngineCore|Worker|TP|DP|PP|EP)([ _0-9].*)?$')
            THEN '' ELSE coalesce(l.service, '') END AS service
    FROM log AS l
    JOIN source AS src ON src.id = l.source_id
    WHERE l.ts_ns IS NOT NULL
        AND regexp_matches(l.message, 'Avg prompt throughput|#running-req|#queue-req|KV cache usage')
),
told AS (
    SELECT part, service, ts_ns,
        TRY_CAST(fields ->> 'running' AS DOUBLE) AS running,
        TRY_CAST(fields ->> 'waiting' AS DOUBLE) AS waiting,
        TRY_CAST(fields ->> 'kv_cache_usage' AS DOUBLE) AS kv_usage,
        TRY_CAST(fields ->> 'prefix_cache_hit_rate' AS DOUBLE) AS prefix_hit_rate,
        TRY_CAST(fields ->> 'prompt_throughput' AS DOUBLE) AS prompt_throughput,
        TRY_CAST(fields ->> 'generation_throughput' AS DOUBLE) AS generation_throughput
    FROM line
),
figure AS (
    SELECT part, role, service, ts_ns, num, 1.0 AS den
    FROM (
        UNPIVOT told
        ON running, waiting, kv_usage, prefix_hit_rate, prompt_throughput, generation_throughput
        INTO NAME role VALUE num
    )
    UNION ALL
    -- SGLang tells the tokens of each batch, those that its cache had and those that it had not.
    SELECT part, 'prefix_hit_rate', service, ts_ns, cached, cached + fresh
    FROM (
        SELECT part, service, ts_ns, TRY_CAST(fields ->> 'cached_tokens' AS DOUBLE) AS cached,
            TRY_CAST(fields ->> 'new_tokens' AS DOUBLE) AS fresh
        FROM line
    )
    WHERE cached + fresh > 0
),
-- Lines that tell of a preemption, and requests that SGLang took back: by ten seconds of each engine's log.
-- No line of the kind in any log says nothing: newer engines do not write them.
push AS (
    SELECT l.source_id, l.ts_ns // 10000000000 AS bin,
        sum(coalesce(TRY_CAST(l.fields ->> 'retracted' AS DOUBLE), 1.0)) AS n
    FROM log AS l
    WHERE l.ts_ns IS NOT NULL
        AND regexp_matches(l.message, '\bpreempted\b|PreemptionMode|#retracted_reqs?: [1-9]')
    GROUP BY ALL
),
engine_bin AS (
    SELECT e.part, e.source_id, e.service, b.bin
    FROM (
        SELECT l.part, l.source_id, min(l.service) AS service,
            min(l.ts_ns - src.shift_ns) // 10000000000 AS first_bin, max(l.ts_ns - src.shift_ns) // 10000000000 AS last_bin
        FROM line AS l
        JOIN source AS src ON src.id = l.source_id
        GROUP BY l.part, l.source_id
    ) AS e
    CROSS JOIN LATERAL (SELECT unnest(range(e.first_bin, e.last_bin + 1)) AS bin) AS b
    WHERE EXISTS (SELECT 1 FROM push)
),
preemption AS (
    SELECT b.part, 'preemptions' AS role, b.service, b.bin * 10000000000 + src.shift_ns AS ts_ns,
        coalesce(p.n, 0.0) AS num, 10.0 AS den
    FROM engine_bin AS b
    JOIN source AS src ON src.id = b.source_id
    LEFT JOIN push AS p ON p.source_id = b.source_id AND p.bin = b.bin
)
SELECT
    -- 'incident' or 'baseline'.
    v.part,
    -- Role of roles.toml, for example 'waiting'.
    v.role,
    -- Service, '' when the log does not say.
    v.service,
    -- Time of the line, ns since the Unix epoch; for preemptions the start of ten seconds.
    v.ts_ns,
    -- Numerator of the value.
    v.num,
    -- Denominator of the value.
    v.den
FROM (FROM figure UNION ALL FROM preemption) AS v
-- Metrics say the same more often: a log counts where they say nothing of this service, one without
-- a service where they say nothing at all.
WHERE NOT EXISTS (
    SELECT 1 FROM series_role AS r WHERE r.role = v.role AND (r.service = v.service OR v.service = '')
);
