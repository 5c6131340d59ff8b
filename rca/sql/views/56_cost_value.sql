-- What one kind of request costs against the others, and where an engine's span and its caller's
-- part; same form as role_value. Ratios are made in stretches of twenty seconds, so that load,
-- which is the same for both kinds, cancels out.
CREATE VIEW cost_value AS
-- What the requests of a trace ask for; options of a request stand on its first span or on the engine's.
WITH asked AS (
    SELECT source_id, trace_id,
        -- Work on the logits: penalties, top-k, log probabilities, banned words.
        bool_or(regexp_matches(text,
            '"[^"]*(frequency_penalty|presence_penalty|repetition_penalty|top_k|logprobs|logit_bias|bad_words)[^"]*":\s*"?-?(0\.0*)?[1-9]'))
            AS samples,
        bool_or(regexp_matches(text,
            '"[^"]*(response_format|response\.format|structured_output|guided_|json_schema|output\.type)[^"]*":\s*("(json|schema|grammar|regex|choice|struct|true|\{)|true|\{)'))
            AS has_schema
    FROM (
        SELECT source_id, trace_id, lower(CAST(attributes AS VARCHAR)) AS text FROM trace_span
        WHERE regexp_matches(CAST(attributes AS VARCHAR), 'gen_ai|llm|response_format|guided|schema')
    )
    GROUP BY source_id, trace_id
),
engine_request AS (
    SELECT r.part, r.service, r.trace_id, r.start_ns, r.start_ns // 20000000000 AS bin,
        r.ttft_ns, r.queue_ns, r.prefill_ns, r.output_tokens,
        r.decode_ns / nullif(r.output_tokens - 1, 0) AS token_ns, a.samples, a.has_schema
    FROM request AS r
    JOIN asked AS a ON a.source_id = r.source_id AND a.trace_id = r.trace_id
    WHERE r.engine_ns IS NOT NULL
),
kind AS (SELECT *, output_tokens > median(output_tokens) OVER () AS is_long FROM engine_request),
-- Time for each token of long answers against short ones: above 1 where a token costs more the
-- more of them there are.
long_answer AS (
    SELECT part, 'long_answer_cost' AS role, service, bin * 20000000000 AS ts_ns,
        median(token_ns) FILTER (is_long) AS num, median(token_ns) FILTER (NOT is_long) AS den
    FROM kind
    WHERE token_ns > 0
    GROUP BY part, service, bin
    HAVING count(*) FILTER (is_long) >= 3 AND count(*) FILTER (NOT is_long) >= 3
),
sampling AS (
    SELECT part, 'sampling_cost' AS role, service, bin * 20000000000 AS ts_ns,
        median(token_ns) FILTER (samples) AS num, median(token_ns) FILTER (NOT samples) AS den
    FROM kind
    WHERE token_ns > 0
    GROUP BY part, service, bin
    HAVING count(*) FILTER (samples) >= 2 AND count(*) FILTER (NOT samples) >= 2
),
-- What a structured answer adds to the wait for the first token, without the prompt's own time, which
-- differs for other reasons; and to the part of it before the queue, which tells more where a grammar
-- is made there. 20 ms more or less are nothing.
stage AS (
    SELECT part, service, trace_id, start_ns, bin, has_schema, 'schema_cost' AS role,
        20000000 + greatest(ttft_ns - coalesce(prefill_ns, 0), 0) AS wait_ns
    FROM kind
    WHERE ttft_ns > 0
    UNION ALL
    SELECT part, service, trace_id, start_ns, bin, has_schema, 'schema_frontend',
        20000000 + greatest(ttft_ns - prefill_ns - queue_ns, 0)
    FROM kind
    WHERE ttft_ns > 0 AND prefill_ns IS NOT NULL AND queue_ns IS NOT NULL
),
-- Requests wait in bursts: each that asks for a structured answer is held against the last one before
-- it and the first one after it that do not, in doublings of their wait. While nobody asks for one none
-- costs more: 0, where others do at another time.
beside AS (
    SELECT *, bool_or(has_schema) OVER (PARTITION BY part, service, bin) AS asked_for,
        last_value(CASE WHEN NOT has_schema THEN wait_ns END IGNORE NULLS) OVER (
            w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns,
        first_value(CASE WHEN NOT has_schema THEN wait_ns END IGNORE NULLS) OVER (
            w ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS after_ns
    FROM stage
    WINDOW w AS (PARTITION BY role, part, service ORDER BY start_ns, trace_id)
),
structured AS (
    SELECT part, role, service, start_ns AS ts_ns,
        CASE WHEN has_schema
            THEN log2(2 * wait_ns / (coalesce(before_ns, after_ns) + coalesce(after_ns, before_ns)))
            ELSE 0.0
        END AS num,
        1.0 AS den
    FROM beside
    WHERE (has_schema OR NOT asked_for) AND EXISTS (SELECT 1 FROM kind WHERE has_schema)
),
-- What the engine's server does before it queues a request: the first token is counted from the
-- arrival there, queue and prefill from the queue on.
before_queue AS (
    SELECT part, 'frontend_time' AS role, service, start_ns AS ts_ns,
        greatest(ttft_ns - queue_ns - prefill_ns, 0) / 1e9 AS num, 1.0 AS den
    FROM engine_request
    WHERE ttft_ns IS NOT NULL AND queue_ns IS NOT NULL AND prefill_ns IS NOT NULL
),
-- Engine spans that go on for more than a second after the span that asked for them has ended.
outlived AS (
    SELECT src.part, 'outlived' AS role, coalesce(e.service, '') AS service, e.start_ns + src.shift_ns AS ts_ns,
        CAST(e.start_ns + e.dur_ns > p.start_ns + p.dur_ns + 1000000000 AS INTEGER) + 0.0 AS num, 1.0 AS den
    FROM engine_span AS e
    JOIN source AS src ON src.id = e.source_id
    JOIN trace_span AS own
        ON own.source_id = e.source_id AND own.trace_id = e.trace_id AND own.span_id = e.span_id
    JOIN trace_span AS p
        ON p.source_id = own.source_id AND p.trace_id = own.trace_id AND p.span_id = own.parent_id
    WHERE p.dur_ns IS NOT NULL
),
every AS (
    SELECT * FROM long_answer
    UNION ALL SELECT * FROM sampling
    UNION ALL SELECT * FROM structured
    UNION ALL SELECT * FROM before_queue
    UNION ALL SELECT * FROM outlived
)
SELECT
    -- Always 'trace'.
    'trace' AS source,
    -- 'incident' or 'baseline'.
    part,
    -- Role, for example 'long_answer_cost'.
    role,
    -- Service of the root span, for 'outlived' the engine; '' when unknown.
    service,
    -- Time, ns since the Unix epoch; for ratios of two kinds the start of twenty seconds.
    ts_ns,
    -- Numerator of the value.
    num,
    -- Denominator of the value.
    den
FROM every
WHERE num IS NOT NULL AND den > 0;
