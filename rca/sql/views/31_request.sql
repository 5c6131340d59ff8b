-- Spans of an inference engine with the latencies it measured itself.
CREATE VIEW engine_span AS
SELECT
    -- The source that the trace is filed under.
    s.source_id,
    -- The source that holds the span.
    s.recorded_in,
    -- Trace id.
    s.trace_id,
    -- Span id.
    s.span_id,
    -- Service that recorded it; NULL when unknown.
    s.service,
    -- Start by the clock of the source that the trace is filed under, ns since the Unix epoch.
    s.start_ns,
    -- Duration in ns.
    s.dur_ns,
    -- Time in the queue, ns; NULL when not recorded.
    TRY_CAST(round(1e9 * TRY_CAST(coalesce(
        s.attributes ->> '$."gen_ai.latency.time_in_queue"',
        s.attributes ->> '$."vllm.latency.queue"') AS DOUBLE)) AS BIGINT) AS queue_ns,
    -- Time to the first token, ns; NULL when not recorded.
    TRY_CAST(round(1e9 * TRY_CAST(coalesce(
        s.attributes ->> '$."gen_ai.latency.time_to_first_token"',
        s.attributes ->> '$."gen_ai.server.time_to_first_token"',
        s.attributes ->> '$."vllm.latency.ttft"') AS DOUBLE)) AS BIGINT) AS ttft_ns,
    -- Time in prefill, ns; NULL when not recorded.
    TRY_CAST(round(1e9 * TRY_CAST(coalesce(
        s.attributes ->> '$."gen_ai.latency.time_in_model_prefill"',
        s.attributes ->> '$."vllm.latency.prefill"') AS DOUBLE)) AS BIGINT) AS prefill_ns,
    -- Time in decode, ns; what follows the first token where the engine writes no figure of its own, NULL when neither is recorded.
    coalesce(
        TRY_CAST(round(1e9 * TRY_CAST(coalesce(
            s.attributes ->> '$."gen_ai.latency.time_in_model_decode"',
            s.attributes ->> '$."vllm.latency.decode"') AS DOUBLE)) AS BIGINT),
        TRY_CAST(round(1e9 * (TRY_CAST(s.attributes ->> '$."gen_ai.latency.e2e"' AS DOUBLE)
            - TRY_CAST(s.attributes ->> '$."gen_ai.latency.time_to_first_token"' AS DOUBLE))) AS BIGINT)) AS decode_ns,
    -- End to end in the engine, ns; NULL when not recorded.
    TRY_CAST(round(1e9 * TRY_CAST(s.attributes ->> '$."gen_ai.latency.e2e"' AS DOUBLE)) AS BIGINT) AS e2e_ns,
    -- Prompt tokens; NULL when not recorded.
    TRY_CAST(coalesce(
        s.attributes ->> '$."gen_ai.usage.prompt_tokens"',
        s.attributes ->> '$."gen_ai.usage.input_tokens"') AS BIGINT) AS input_tokens,
    -- Tokens generated; NULL when not recorded.
    TRY_CAST(coalesce(
        s.attributes ->> '$."gen_ai.usage.completion_tokens"',
        s.attributes ->> '$."gen_ai.usage.output_tokens"') AS BIGINT) AS output_tokens,
    -- Request id; NULL when not recorded.
    s.attributes ->> '$."gen_ai.request.id"' AS request_id,
    -- Pod or instance; NULL when not recorded.
    coalesce(
        s.attributes ->> '$."resource.k8s.pod.name"',
        s.attributes ->> '$."resource.service.instance.id"',
        s.attributes ->> '$."resource.host.name"') AS replica
FROM trace_span AS s
WHERE s.dur_ns IS NOT NULL
    AND (s.name IN ('llm_request', 'vllm.request')
        OR json_exists(s.attributes, '$."gen_ai.latency.e2e"')
        OR json_exists(s.attributes, '$."gen_ai.latency.time_to_first_token"'));

-- Services that the telemetry shows to be inference engines, whatever they are called: by spans with an engine's
-- own latencies, else by what only an engine counts. A queue alone is told by many servers, so it names one
-- only where nothing better does.
CREATE VIEW engine_service AS
WITH shown AS (
    SELECT service FROM engine_span
    UNION
    SELECT service FROM series_role WHERE role IN ('running', 'kv_usage', 'itl', 'preemptions')
)
SELECT
    -- Service, never '' or NULL.
    service
FROM shown
WHERE service <> ''
UNION
SELECT service FROM series_role
WHERE role = 'waiting' AND service <> '' AND NOT EXISTS (SELECT 1 FROM shown WHERE service <> '');

-- Whether what a client calls is an engine: it serves the model, and its time is no dependency's. Addresses in a
-- cluster begin with the name of the service.
CREATE MACRO calls_engine(callee) AS
    coalesce(callee IN (FROM engine_service) OR split_part(callee, '.', 1) IN (FROM engine_service)
        OR regexp_matches(lower(callee), 'engine|vllm|sglang|triton|tgi'), false);

-- One row a request: the root of its trace, with what the engine measured of it.
-- Requests that the recording cuts off, whose caller's span is missing at its first or last moments,
-- are left out: the piece that is there would be taken for a whole, short request of another service.
CREATE VIEW request AS
-- The first and last moments: as long as most requests take.
WITH edge AS (
    SELECT src.part, min(s.start_ns + src.shift_ns) AS first_ns, max(s.start_ns + s.dur_ns + src.shift_ns) AS last_ns,
        CAST(quantile_cont(s.dur_ns, 0.95) FILTER (s.parent_id IS NULL) AS BIGINT) AS usual_ns
    FROM trace_span AS s
    JOIN source AS src ON src.id = s.source_id
    WHERE s.dur_ns IS NOT NULL
    GROUP BY src.part
),
-- Services that others call as a rule; where no caller was ever recorded, spans are the requests.
called AS (
    SELECT src.part, c.service
    FROM trace_span AS c
    JOIN source AS src ON src.id = c.source_id
    LEFT JOIN trace_span AS p
        ON p.source_id = c.source_id AND p.trace_id = c.trace_id AND p.span_id = c.parent_id
    WHERE c.parent_id IS NOT NULL
    GROUP BY src.part, c.service
    HAVING count(p.span_id) > 0.5 * count(*)
),
root AS (
    SELECT s.*
    FROM trace_span AS s
    LEFT JOIN trace_span AS p
        ON p.source_id = s.source_id AND p.trace_id = s.trace_id AND p.span_id = s.parent_id
    WHERE p.span_id IS NULL AND s.dur_ns IS NOT NULL
    -- A trace that lies in several pieces has several roots: a true one stands for the request, of
    -- several the first.
    QUALIFY row_number() OVER (
        PARTITION BY s.source_id, s.trace_id
        ORDER BY s.parent_id IS NOT NULL, s.start_ns, s.dur_ns DESC, s.span_id) = 1
),
-- The engine span that took longest stands for the request's engine work.
engine AS (
    SELECT * FROM engine_span
    QUALIFY row_number() OVER (
        PARTITION BY source_id, trace_id ORDER BY dur_ns DESC, span_id) = 1
)
SELECT
    -- The source that its trace is filed under.
    r.source_id,
    -- 'incident' or 'baseline'.
    src.part,
    -- The engine's id of the request, else the trace id.
    coalesce(e.request_id, r.trace_id) AS request_id,
    -- Trace id.
    r.trace_id,
    -- Arrival, ns since the Unix epoch, the source's clock corrected.
    r.start_ns + src.shift_ns AS start_ns,
    -- End, ns since the Unix epoch, the source's clock corrected.
    r.start_ns + r.dur_ns + src.shift_ns AS end_ns,
    -- Time in the engine's queue, ns; NULL when not recorded.
    e.queue_ns,
    -- Time to the first token as the engine measured it, ns; NULL when not recorded.
    e.ttft_ns,
    -- Mean time between tokens, ns; NULL when not recorded or there is one token only.
    TRY_CAST(round(e.decode_ns / nullif(greatest(e.output_tokens - 1, 0), 0)) AS BIGINT) AS itl_ns,
    -- Time in prefill, ns; NULL when not recorded.
    e.prefill_ns,
    -- Time in decode, ns; NULL when not recorded.
    e.decode_ns,
    -- End to end as the root span has it, ns.
    r.dur_ns AS e2e_ns,
    -- Duration of the engine's span, ns; NULL when the trace has none.
    e.dur_ns AS engine_ns,
    -- Prompt tokens; NULL when not recorded.
    e.input_tokens,
    -- Tokens generated; NULL when not recorded.
    e.output_tokens,
    -- 'ok', 'error' or 'unset', of the root span.
    r.status,
    -- Model; NULL when not recorded.
    coalesce(
        r.attributes ->> '$."gen_ai.request.model"',
        r.attributes ->> '$."model.name"',
        r.attributes ->> '$."gen_ai.response.model"') AS model,
    -- Tenant; NULL when not recorded.
    coalesce(
        r.attributes ->> '$."tenant.id"',
        r.attributes ->> '$."tenant"',
        r.attributes ->> '$."enduser.id"') AS tenant,
    -- Pod or instance of the engine; NULL when not recorded.
    e.replica,
    -- Service of the root span, '' when unknown.
    coalesce(r.service, '') AS service
FROM root AS r
JOIN source AS src ON src.id = r.source_id
LEFT JOIN engine AS e ON e.source_id = r.source_id AND e.trace_id = r.trace_id
LEFT JOIN edge AS b ON b.part = src.part
LEFT JOIN called AS k ON k.part = src.part AND k.service IS NOT DISTINCT FROM r.service
-- Start-up work of a process is traced too, and is no request.
WHERE (e.span_id IS NOT NULL OR r.kind IS DISTINCT FROM 'internal')
    AND NOT (r.parent_id IS NOT NULL AND k.part IS NOT NULL
        AND coalesce(r.start_ns + src.shift_ns < b.first_ns + b.usual_ns
            OR r.start_ns + r.dur_ns + src.shift_ns > b.last_ns - b.usual_ns, false));
