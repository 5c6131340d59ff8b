-- Every signal in one form: the value of a signal over a span of time is sum(num) / sum(den).
CREATE VIEW signal_value AS
SELECT
    -- 'metrics', 'trace', 'log', 'torch_profiler' or 'gpu': the kind of recording.
    'metrics' AS source,
    -- Role of roles.toml, 'metric:NAME' for a metric without one, or a role of spans and operators.
    role,
    -- Service, '' when unknown.
    service,
    -- Operation of a span, '' for all other signals.
    '' AS subject,
    -- 'incident' or 'baseline'.
    part,
    -- Time, ns since the Unix epoch.
    ts_ns,
    -- Numerator.
    num,
    -- Denominator.
    den
FROM role_value
WHERE den > 0 AND role <> 'container_starts'
UNION ALL
SELECT 'trace', role, service, '', part, ts_ns, num, den FROM request_value
UNION ALL
SELECT 'trace', role, service, subject, part, ts_ns, num, den FROM span_value
UNION ALL
SELECT 'torch_profiler', role, service, '', part, ts_ns, num, den FROM profile_value
UNION ALL
SELECT 'gpu', role, service, '', part, ts_ns, num, den FROM gpu_value
UNION ALL
SELECT source, role, service, '', part, ts_ns, num, den FROM derived_value
UNION ALL
SELECT source, role, service, '', part, ts_ns, num, den FROM context_value
UNION ALL
SELECT 'log', role, service, '', part, ts_ns, num, den FROM engine_log_value
UNION ALL
SELECT source, role, service, '', part, ts_ns, num, den FROM cost_value
UNION ALL
SELECT 'trace', role, service, '', part, ts_ns, num, den FROM text_cost_value
UNION ALL
SELECT 'metrics', role, service, '', part, ts_ns, num, den FROM kv_tokens_value;

-- Groups of spans by time bins of a second, so that large traces stay small; same form as signal_value.
CREATE VIEW span_signal AS
SELECT
    -- Always 'trace'.
    'trace' AS source,
    -- 'span_time', 'span_self', 'call_gap' or 'span_errors'.
    role,
    -- Service; for call_gap the one that is called.
    service,
    -- Operation name.
    subject,
    -- 'incident' or 'baseline'.
    part,
    -- Start of the second, ns since the Unix epoch.
    ts_ns // 1000000000 * 1000000000 AS ts_ns,
    -- Numerator.
    sum(num) AS num,
    -- Denominator.
    sum(den) AS den
FROM span_value
WHERE ts_ns IS NOT NULL
GROUP BY ALL;
