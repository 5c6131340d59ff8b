-- Signals made of several values at once; same form as role_value.
CREATE VIEW derived_value AS
-- How unevenly replicas are loaded: the busiest against the mean, 1 when even.
WITH load AS (
    SELECT part, service, replica, ts_ns, sum(num / nullif(den, 0)) AS value
    FROM role_point
    WHERE role IN ('running', 'waiting')
    GROUP BY part, service, replica, ts_ns
),
skew AS (
    SELECT part, 'replica_skew' AS role, service, ts_ns, max(value) AS num, avg(value) AS den
    FROM load
    GROUP BY part, service, ts_ns
    HAVING count(*) >= 2 AND avg(value) > 0
),
-- Scrapes in which requests wait although the KV cache has room, and how much the batch size moves:
-- a batch pinned at a cap does not move.
engine_state AS (
    SELECT part, service, ts_ns,
        max(value) FILTER (role = 'running') AS running,
        max(value) FILTER (role = 'waiting') AS waiting,
        max(value) FILTER (role = 'kv_usage') AS kv_usage
    FROM role_value
    WHERE role IN ('running', 'waiting', 'kv_usage')
    GROUP BY part, service, ts_ns
),
room AS (
    SELECT part, 'waiting_with_room' AS role, service, ts_ns,
        CAST(waiting >= 1 AND kv_usage < 0.7 AS INTEGER) AS num, 1.0 AS den
    FROM engine_state
    WHERE waiting IS NOT NULL AND kv_usage IS NOT NULL
),
-- Scrapes in which the KV cache is nearly full although hardly anything runs, against the batches
-- that the engine usually has: blocks are held that belong to no running request. And the share of
-- the cache for each running request.
held AS (
    SELECT part, 'kv_without_work' AS role, service, ts_ns,
        CAST(kv_usage >= 0.7 AND running <= greatest(1, 0.1 * quantile_cont(running, 0.95) OVER (PARTITION BY service))
            AS INTEGER) AS num,
        1.0 AS den
    FROM engine_state
    WHERE running IS NOT NULL AND kv_usage IS NOT NULL
),
per_request AS (
    SELECT part, 'kv_per_request' AS role, service, ts_ns, kv_usage AS num, running AS den
    FROM engine_state
    WHERE running > 0
),
spread AS (
    SELECT part, 'running_spread' AS role, service, ts_ns,
        abs(running - lag(running) OVER (PARTITION BY part, service ORDER BY ts_ns)) AS num,
        running AS den
    FROM engine_state
),
-- Tokens of a step for each running request: about 1 in decode, more when prompts are computed,
-- and much more when context is computed again. Unlike tokens of a step it does not grow with load.
slot AS (
    SELECT t.part, 'tokens_per_slot' AS role, t.service, t.ts_ns, t.num AS num, t.den * r.value AS den
    FROM role_value AS t
    JOIN role_value AS r ON r.part = t.part AND r.service = t.service AND r.ts_ns = t.ts_ns
    WHERE t.role = 'step_tokens' AND r.role = 'running' AND r.value > 0
),
-- Tokens that steps worked on, for each token that had to be worked on: prompt tokens without those
-- found in the cache, and generated ones. About 1 whatever the load; more when context is computed
-- again. Less only where tokens come from a cache that counts no hits: that says nothing.
token_flow AS (
    SELECT part, service, ts_ns,
        sum(num) FILTER (role = 'step_tokens') AS worked,
        sum(num) FILTER (role = 'prompt_throughput') AS prompted,
        sum(num) FILTER (role = 'generation_throughput') AS generated,
        coalesce(sum(num) FILTER (role = 'prefix_hit_rate'), 0) AS cached
    FROM role_point
    WHERE role IN ('step_tokens', 'prompt_throughput', 'generation_throughput', 'prefix_hit_rate')
    GROUP BY part, service, ts_ns
),
again AS (
    SELECT part, 'recomputed' AS role, service, ts_ns,
        greatest(worked, greatest(prompted - cached, 0) + generated) AS num,
        greatest(prompted - cached, 0) + generated AS den
    FROM token_flow
    WHERE worked IS NOT NULL AND prompted IS NOT NULL AND generated IS NOT NULL
),
-- Memory that grows, bytes per second.
growth AS (
    SELECT part, role || '_growth' AS role, service, ts_ns,
        value - lag(value) OVER w AS num,
        (ts_ns - lag(ts_ns) OVER w) / 1e9 AS den
    FROM role_value
    WHERE role IN ('host_memory', 'gpu_memory')
    WINDOW w AS (PARTITION BY part, role, service ORDER BY ts_ns)
),
-- Processes that started again, replicas a scrape: by the start that they tell, else by Kubernetes' or Ray's count.
started AS (
    SELECT part, service, replica, ts_ns,
        num - lag(num) OVER (PARTITION BY part, service, replica ORDER BY ts_ns) AS started
    FROM role_point
    WHERE role = 'process_age'
    UNION ALL
    SELECT c.part, c.service, c.replica, c.ts_ns, c.num
    FROM role_point AS c
    WHERE c.role = 'container_starts' AND NOT EXISTS (SELECT 1 FROM role_point AS p
        WHERE p.role = 'process_age' AND p.part = c.part AND p.service = c.service AND p.replica = c.replica)
),
restart AS (
    SELECT part, 'restart' AS role, service, ts_ns, CAST(sum(CAST(started > 0 AS INTEGER)) AS DOUBLE) AS num,
        1.0 AS den
    FROM started
    GROUP BY part, service, ts_ns
),
-- Arrivals in bins of two seconds against their mean over half a minute: their variance is their
-- mean for Poisson traffic, and many times that for bursts.
per_bin AS (
    SELECT part, service, start_ns // 2000000000 AS slot, count(*) AS n
    FROM request
    GROUP BY part, service, slot
),
every_bin AS (
    SELECT b.part, b.service, b.slot, coalesce(p.n, 0) AS n
    FROM (
        SELECT part, service, unnest(generate_series(min(slot), max(slot))) AS slot
        FROM per_bin
        GROUP BY part, service
        HAVING max(slot) - min(slot) < 100000
    ) AS b
    LEFT JOIN per_bin AS p ON p.part = b.part AND p.service = b.service AND p.slot = b.slot
),
burst AS (
    SELECT part, 'arrival_dispersion' AS role, service, slot * 2000000000 AS ts_ns,
        power(n - avg(n) OVER w, 2) AS num, avg(n) OVER w AS den
    FROM every_bin
    WINDOW w AS (
        PARTITION BY part, service ORDER BY slot ROWS BETWEEN 8 PRECEDING AND 8 FOLLOWING)
),
-- Gaps between tokens that are far longer than the usual one: a stall of the whole batch.
gap_bucket AS (
    SELECT src.part, c.ts_ns, TRY_CAST(s.labels['le'] AS DOUBLE) AS bound, sum(c.delta) AS below
    FROM counter_rate AS c
    JOIN series AS s ON s.id = c.series_id
    JOIN source AS src ON src.id = s.source_id
    WHERE regexp_matches(s.name, '(vllm|sglang)[:_](inter_token_latency|time_per_output_token)_seconds_bucket$')
        AND s.labels['le'] <> '+Inf'
    GROUP BY src.part, c.ts_ns, bound
),
gap_mean AS (
    SELECT part, service, ts_ns, num / den AS mean, den AS n
    FROM role_value
    WHERE role = 'itl' AND den > 0
),
stall AS (
    SELECT m.part, 'itl_stalls' AS role, m.service, m.ts_ns,
        greatest(any_value(m.n) - min(b.below), 0) AS num, any_value(m.n) AS den
    FROM gap_mean AS m
    JOIN gap_bucket AS b ON b.part = m.part AND b.ts_ns = m.ts_ns AND b.bound >= 4 * m.mean
    GROUP BY m.part, m.service, m.ts_ns
),
-- Share of the busiest tenant, by ten seconds.
tenant AS (
    SELECT part, service, start_ns // 10000000000 AS slot, tenant, count(*) AS n
    FROM request
    WHERE tenant IS NOT NULL
    GROUP BY part, service, slot, tenant
),
top_tenant AS (
    SELECT part, 'top_tenant_share' AS role, service, slot * 10000000000 AS ts_ns,
        CAST(max(n) AS DOUBLE) AS num, CAST(sum(n) AS DOUBLE) AS den
    FROM tenant
    GROUP BY part, service, slot
),
-- Prompts more than twice as long as the median of all.
long_prompt AS (
    SELECT part, 'long_prompts' AS role, service, start_ns AS ts_ns,
        CAST(input_tokens > 2 * (SELECT median(input_tokens) FROM request) AS INTEGER) AS num, 1.0 AS den
    FROM request
    WHERE input_tokens IS NOT NULL
),
-- Requests slower than nearly all of the baseline's: a slow few show here before any mean moves.
usual AS (
    SELECT quantile_cont(e2e_ns, 0.95) AS e2e_ns, quantile_cont(ttft_ns, 0.95) AS ttft_ns
    FROM request
    WHERE part = 'baseline'
),
slow_request AS (
    SELECT r.part, 'slow_requests' AS role, r.service, r.start_ns AS ts_ns,
        CAST(r.e2e_ns > u.e2e_ns OR coalesce(r.ttft_ns > u.ttft_ns, false) AS INTEGER) AS num,
        1.0 AS den
    FROM request AS r
    CROSS JOIN usual AS u
    WHERE u.e2e_ns IS NOT NULL
),
-- Calls of one service by another, as the caller sees them.
call AS (
    SELECT s.source_id, src.part, s.trace_id, s.span_id, s.start_ns + src.shift_ns AS ts_ns, s.dur_ns,
        coalesce(s.attributes ->> '$."server.address"', s.attributes ->> '$."peer.service"',
            s.attributes ->> '$."db.system.name"', s.attributes ->> '$."db.system"') AS callee
    FROM trace_span AS s
    JOIN source AS src ON src.id = s.source_id
    WHERE s.kind = 'client' AND s.dur_ns IS NOT NULL
),
dependency AS (
    SELECT part, 'dependency_time' AS role, callee AS service, ts_ns, dur_ns / 1e9 AS num, 1.0 AS den
    FROM call
    WHERE callee IS NOT NULL AND NOT calls_engine(callee)
),
calls AS (
    SELECT part, 'calls_per_request' AS role, callee AS service, min(ts_ns) AS ts_ns,
        CAST(count(*) AS DOUBLE) AS num, 1.0 AS den
    FROM call
    WHERE callee IS NOT NULL
    GROUP BY part, source_id, trace_id, callee
),
-- Time in the caller between what it did before and the start of a call: what waits for a
-- connection shows here when the caller's span begins with the call, and in the gap below otherwise.
ordered AS (
    SELECT s.source_id, s.span_id, src.shift_ns, s.start_ns, p.start_ns AS parent_ns,
        max(s.start_ns + coalesce(s.dur_ns, 0))
            FILTER (NOT regexp_matches(lower(s.name), 'pool[._ ](acquire|wait|checkout)|acquire.*connection')) OVER (
            PARTITION BY s.source_id, s.trace_id, s.parent_id ORDER BY s.start_ns, s.span_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns,
        s.trace_id
    FROM trace_span AS s
    JOIN source AS src ON src.id = s.source_id
    JOIN trace_span AS p
        ON p.source_id = s.source_id AND p.trace_id = s.trace_id AND p.span_id = s.parent_id
    WHERE s.span_id <> p.span_id
),
call_wait AS (
    SELECT c.part, 'call_wait' AS role, c.callee AS service, c.ts_ns,
        greatest(o.start_ns - greatest(o.parent_ns, coalesce(o.before_ns, o.parent_ns)), 0) / 1e9 AS num,
        1.0 AS den
    FROM call AS c
    JOIN ordered AS o
        ON o.source_id = c.source_id AND o.trace_id = c.trace_id AND o.span_id = c.span_id
    WHERE c.callee IS NOT NULL AND NOT calls_engine(c.callee)
),
-- Time between a caller's span and the callee's own: network and waiting for a connection.
gap AS (
    SELECT part,
        CASE WHEN callee IN (FROM engine_service) THEN 'engine_gap' ELSE 'network_gap' END AS role,
        callee AS service, start_ns AS ts_ns, self_ns / 1e9 AS num, 1.0 AS den
    FROM span_self
    WHERE callee IS NOT NULL AND kind = 'client'
),
named AS (
    SELECT part,
        CASE
            WHEN regexp_matches(lower(name), 'detokeni[sz]') THEN 'detokenise_time'
            WHEN regexp_matches(lower(name), 'tokeni[sz]e') THEN 'tokenise_time'
            WHEN regexp_matches(lower(name), 'seriali[sz]|encode_response|assemble') THEN 'serialise_time'
            WHEN regexp_matches(lower(name), 'pool[._ ](acquire|wait|checkout)|acquire.*connection') THEN 'pool_wait'
        END AS role,
        service, start_ns AS ts_ns, dur_ns / 1e9 AS num, 1.0 AS den
    FROM span_self
),
every AS (
    SELECT * FROM skew
    UNION ALL SELECT * FROM growth
    UNION ALL SELECT * FROM room
    UNION ALL SELECT * FROM held
    UNION ALL SELECT * FROM per_request
    UNION ALL SELECT * FROM slow_request
    UNION ALL SELECT * FROM stall
    UNION ALL SELECT * FROM slot
    UNION ALL SELECT * FROM spread
    UNION ALL SELECT * FROM again
    UNION ALL SELECT * FROM restart
    UNION ALL SELECT * FROM burst
    UNION ALL SELECT * FROM top_tenant
    UNION ALL SELECT * FROM long_prompt
    UNION ALL SELECT * FROM dependency
    UNION ALL SELECT * FROM calls
    UNION ALL SELECT * FROM gap
    UNION ALL SELECT * FROM call_wait
    UNION ALL SELECT * FROM named WHERE role IS NOT NULL
)
SELECT
    -- 'metrics' or 'trace': what it is made of.
    CASE WHEN role IN ('replica_skew', 'restart', 'itl_stalls', 'tokens_per_slot', 'recomputed', 'waiting_with_room', 'kv_without_work', 'kv_per_request', 'running_spread', 'host_memory_growth', 'gpu_memory_growth') THEN 'metrics' ELSE 'trace' END AS source,
    -- 'incident' or 'baseline'.
    part,
    -- Role, for example 'replica_skew'.
    role,
    -- Service; for calls and gaps the one that is called.
    service,
    -- Time, ns since the Unix epoch.
    ts_ns,
    -- Numerator of the value.
    num,
    -- Denominator of the value.
    den
FROM every
WHERE num IS NOT NULL AND den > 0;
